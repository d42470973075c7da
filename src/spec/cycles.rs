//! Circles among tasks that wait for each other. Iterative, and linear but for a bounded search for the shortest.

use std::collections::VecDeque;

use super::graph::TaskIx;

/// How many edges the search for shorter circles may look at, over the whole graph.
const SEARCH_EDGES: usize = 4_000_000;

/// One circle for each knot of tasks that all wait for each other, in the file's order of their first tasks: the
/// shortest, unless the graph is so large that looking further would take long. A task that waits for itself is told as
/// a circle of one. The first task is not repeated.
pub(super) fn cycles<'g>(count: usize, edges: impl Fn(TaskIx) -> &'g [TaskIx]) -> Vec<Vec<TaskIx>> {
    let mut found: Vec<Vec<TaskIx>> = Vec::new();
    for task in (0..count).map(TaskIx::new) {
        if edges(task).contains(&task) {
            found.push(vec![task]);
        }
    }
    let (knot_of, knots) = knots(count, &edges);
    let mut search = Search { distance: vec![0; count], parent: vec![TaskIx::new(0); count], budget: SEARCH_EDGES };
    for knot in knots.iter().filter(|knot| knot.len() > 1) {
        let mut best: Option<Vec<TaskIx>> = None;
        for &start in knot {
            let limit = best.as_ref().map_or(usize::MAX, Vec::len);
            if limit == 2 || (best.is_some() && search.budget == 0) {
                break;
            }
            best = search.shortest_through(start, limit, &knot_of, &edges).or(best);
        }
        found.extend(best);
    }
    found.sort_by_key(|cycle| cycle.iter().min().copied());
    found
}

/// Tarjan's strongly connected components: the component of each task, and the tasks of each component in the file's
/// order.
fn knots<'g>(count: usize, edges: &impl Fn(TaskIx) -> &'g [TaskIx]) -> (Vec<u32>, Vec<Vec<TaskIx>>) {
    const UNSEEN: u32 = u32::MAX;
    let mut order = vec![UNSEEN; count];
    let mut low = vec![0u32; count];
    let mut knot_of = vec![UNSEEN; count];
    let mut knots: Vec<Vec<TaskIx>> = Vec::new();
    let mut open: Vec<TaskIx> = Vec::new();
    let mut next = 0;
    // Tasks on the way, each with the number of edges that have been followed.
    let mut path: Vec<(TaskIx, usize)> = Vec::new();
    for root in (0..count).map(TaskIx::new) {
        if order[root.index()] != UNSEEN {
            continue;
        }
        path.push((root, 0));
        while let Some((task, followed)) = path.last_mut() {
            let at = task.index();
            if *followed == 0 {
                order[at] = next;
                low[at] = next;
                next += 1;
                open.push(*task);
            }
            if let Some(&on) = edges(*task).get(*followed) {
                *followed += 1;
                if order[on.index()] == UNSEEN {
                    path.push((on, 0));
                } else if knot_of[on.index()] == UNSEEN {
                    low[at] = low[at].min(order[on.index()]);
                }
                continue;
            }
            path.pop();
            if let Some((below, _)) = path.last() {
                low[below.index()] = low[below.index()].min(low[at]);
            }
            if low[at] == order[at] {
                let number = u32::try_from(knots.len()).unwrap_or(UNSEEN);
                let mut knot = Vec::new();
                while let Some(task) = open.pop() {
                    knot_of[task.index()] = number;
                    knot.push(task);
                    if task.index() == at {
                        break;
                    }
                }
                knot.sort_unstable();
                knots.push(knot);
            }
        }
    }
    (knot_of, knots)
}

struct Search {
    /// From the start, plus one; 0: not reached.
    distance: Vec<u32>,
    parent: Vec<TaskIx>,
    budget: usize,
}

impl Search {
    /// The shortest circle of at least two tasks through `start`, if it is shorter than `limit`.
    fn shortest_through<'g>(
        &mut self,
        start: TaskIx,
        limit: usize,
        knot_of: &[u32],
        edges: &impl Fn(TaskIx) -> &'g [TaskIx],
    ) -> Option<Vec<TaskIx>> {
        let knot = knot_of[start.index()];
        let mut queue = VecDeque::from([start]);
        let mut reached = vec![start];
        self.distance[start.index()] = 1;
        let mut last = None;
        'search: while let Some(task) = queue.pop_front() {
            // A circle that closes here has as many tasks as this one's distance says.
            if self.distance[task.index()] as usize >= limit {
                break;
            }
            for &on in edges(task) {
                self.budget = self.budget.saturating_sub(1);
                if on == start && task != start {
                    last = Some(task);
                    break 'search;
                }
                if knot_of[on.index()] == knot && self.distance[on.index()] == 0 {
                    self.distance[on.index()] = self.distance[task.index()] + 1;
                    self.parent[on.index()] = task;
                    queue.push_back(on);
                    reached.push(on);
                }
            }
        }
        let cycle = last.map(|last| {
            let mut cycle = vec![last];
            let mut at = last;
            while at != start {
                at = self.parent[at.index()];
                cycle.push(at);
            }
            cycle.reverse();
            cycle
        });
        for task in reached {
            self.distance[task.index()] = 0;
        }
        cycle
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn find(rows: &[Vec<usize>]) -> Vec<Vec<usize>> {
        let rows: Vec<Vec<TaskIx>> = rows.iter().map(|row| row.iter().map(|&i| TaskIx::new(i)).collect()).collect();
        let found = cycles(rows.len(), |task| &rows[task.index()]);
        found.into_iter().map(|cycle| cycle.into_iter().map(TaskIx::index).collect()).collect()
    }

    #[test]
    fn the_shortest_of_a_knot_is_found_wherever_it_is() {
        // 0 → 1 → 2 → 3 → 0, and 2 ⇄ 3 within; 4 leads in.
        assert_eq!(find(&[vec![1], vec![2], vec![3], vec![0, 2], vec![0]]), [[2, 3]]);
    }

    #[test]
    fn every_knot_and_every_self_is_told_once() {
        assert_eq!(find(&[vec![0, 1], vec![0], vec![3], vec![2], vec![2]]), [vec![0], vec![0, 1], vec![2, 3]]);
    }

    #[test]
    fn a_hundred_thousand_in_a_ring_and_many_small_rings_on_a_path_need_no_stack_and_no_square() {
        let count = 100_000;
        let ring: Vec<Vec<usize>> = (0..count).map(|i| vec![(i + 1) % count]).collect();
        assert_eq!(find(&ring)[0].len(), count);
        // Pairs that wait for each other, each pair also for the next: a search from each would run to the end.
        let pairs: Vec<Vec<usize>> =
            (0..count).map(|i| if i % 2 == 0 { vec![i + 1] } else { vec![i - 1, (i + 1).min(count - 1)] }).collect();
        assert_eq!(find(&pairs).len(), count / 2 + 1);
    }

    proptest! {
        #[test]
        fn what_is_told_is_a_circle_and_nothing_is_told_of_a_graph_without(
            rows in prop::collection::vec(prop::collection::vec(0usize..12, 0..4), 12)
        ) {
            let found = find(&rows);
            for cycle in &found {
                for (i, &task) in cycle.iter().enumerate() {
                    prop_assert!(rows[task].contains(&cycle[(i + 1) % cycle.len()]));
                }
            }
            // Reachability by brute force: some task reaches itself exactly if a circle is told.
            let mut reach: Vec<Vec<bool>> = (0..12).map(|i| (0..12).map(|j| rows[i].contains(&j)).collect()).collect();
            for k in 0..12 {
                for i in 0..12 {
                    for j in 0..12 {
                        reach[i][j] |= reach[i][k] && reach[k][j];
                    }
                }
            }
            prop_assert_eq!(found.is_empty(), (0..12).all(|i| !reach[i][i]));
        }
    }
}
