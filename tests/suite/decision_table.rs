//! The decision table in `specs/` against the code, over the full product of facts.

use orchestrate::plan::{ContainerFact, DependencyFact, Facts, RecordFact, decide};

const TABLE: &str = include_str!("../../specs/decision-table.md");

struct Row {
    cells: Vec<String>,
    decision: String,
}

/// The rows of the last table of the page: seven columns of facts, the decision, the reason.
fn rows() -> Vec<Row> {
    let lines: Vec<&str> = TABLE.lines().collect();
    let header = lines.iter().rposition(|line| line.starts_with("| record |")).expect("a table");
    let table = lines[header + 2..].iter().take_while(|line| line.starts_with('|'));
    table
        .map(|line| {
            let cells: Vec<String> = line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
            assert_eq!(cells.len(), 9, "{line}");
            Row { decision: cells[7].clone(), cells: cells[..7].to_vec() }
        })
        .collect()
}

fn matches(row: &Row, facts: &[String; 7]) -> bool {
    row.cells.iter().zip(facts).all(|(cell, fact)| cell == "*" || cell.split(", ").any(|word| word == fact))
}

fn product() -> Vec<Facts> {
    let mut all = Vec::new();
    for record in RecordFact::ALL {
        for container in ContainerFact::ALL {
            for dependencies in DependencyFact::ALL {
                for bits in 0..16u8 {
                    let bit = |n: u8| bits & (1 << n) != 0;
                    all.push(Facts {
                        record,
                        container,
                        dependencies,
                        cancel: bit(0),
                        overdue: bit(1),
                        suspended: bit(2),
                        backing_off: bit(3),
                    });
                }
            }
        }
    }
    all
}

fn words(facts: Facts) -> [String; 7] {
    let yes = |fact: bool| if fact { "yes" } else { "no" }.to_owned();
    [
        format!("{:?}", facts.record),
        format!("{:?}", facts.container),
        format!("{:?}", facts.dependencies),
        yes(facts.cancel),
        yes(facts.overdue),
        yes(facts.suspended),
        yes(facts.backing_off),
    ]
}

#[test]
fn the_code_decides_as_the_table_says_and_every_row_counts() {
    let rows = rows();
    let mut used = vec![0usize; rows.len()];
    let product = product();
    assert_eq!(product.len(), 8 * 6 * 3 * 16);
    for facts in product {
        let words = words(facts);
        let row = rows.iter().position(|row| matches(row, &words));
        let row = row.unwrap_or_else(|| panic!("no row of specs/decision-table.md fits {words:?}"));
        used[row] += 1;
        assert_eq!(format!("{:?}", decide(facts)), rows[row].decision, "row {} for {words:?}", row + 1);
    }
    for (number, count) in used.iter().enumerate() {
        assert!(*count > 0, "row {} of specs/decision-table.md can never fit", number + 1);
    }
}
