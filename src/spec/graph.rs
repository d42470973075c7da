//! The dependency graph as dense arrays: interned ids, compressed rows in both directions, no recursion.

use std::collections::HashMap;

use super::cycles;
use super::id::TaskId;

/// Index of a task in its set's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskIx(u32);

impl TaskIx {
    /// From a position in the file's order; a plan file of at most 64 MiB cannot hold more than `u32::MAX` tasks.
    pub fn new(index: usize) -> Self {
        Self(u32::try_from(index).expect("BUG: more tasks than a plan file can hold"))
    }

    /// The position in the file's order.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Dependencies and dependents of every task.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Graph {
    by_id: HashMap<TaskId, TaskIx>,
    dependencies: Rows,
    dependents: Rows,
    order: Vec<TaskIx>,
    chain: Vec<u32>,
}

/// Compressed sparse rows.
#[derive(Debug, Clone, PartialEq, Default)]
struct Rows {
    starts: Vec<u32>,
    items: Vec<TaskIx>,
}

impl Rows {
    fn build(rows: usize, pairs: &[(TaskIx, TaskIx)]) -> Self {
        let mut starts = vec![0u32; rows + 1];
        for (row, _) in pairs {
            starts[row.index() + 1] += 1;
        }
        for i in 0..rows {
            starts[i + 1] += starts[i];
        }
        let mut next = starts.clone();
        let mut items = vec![TaskIx(0); pairs.len()];
        for (row, item) in pairs {
            let slot = &mut next[row.index()];
            items[*slot as usize] = *item;
            *slot += 1;
        }
        Self { starts, items }
    }

    fn row(&self, row: TaskIx) -> &[TaskIx] {
        let i = row.index();
        match (self.starts.get(i), self.starts.get(i + 1)) {
            (Some(&from), Some(&to)) => &self.items[from as usize..to as usize],
            _ => &[],
        }
    }
}

/// Why a list of tasks is no graph. Names positions, so that the caller can point at the text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GraphFault {
    /// A dependency (its position in the task's list) names no task.
    Unknown {
        /// The task that depends.
        task: TaskIx,
        /// Position in its list.
        position: usize,
    },
    /// The shortest cycle found, first task not repeated; of length 1 for a task that depends on itself.
    Cycle(Vec<TaskIx>),
}

impl Graph {
    /// Builds the graph of `(id, dependencies)` rows with unique ids.
    ///
    /// # Errors
    /// Every unknown dependency, and one shortest cycle for each knot of tasks that wait for each other.
    pub fn build<'a, I, D>(tasks: I) -> Result<Self, Vec<GraphFault>>
    where
        I: IntoIterator<Item = (&'a TaskId, D)>,
        D: IntoIterator<Item = &'a TaskId>,
    {
        let mut by_id = HashMap::new();
        let rows: Vec<(&TaskId, Vec<&TaskId>)> =
            tasks.into_iter().map(|(id, dependencies)| (id, dependencies.into_iter().collect())).collect();
        for (i, (id, _)) in rows.iter().enumerate() {
            by_id.insert((*id).clone(), TaskIx::new(i));
        }
        let mut faults = Vec::new();
        let mut pairs = Vec::new();
        for (i, (_, dependencies)) in rows.iter().enumerate() {
            let task = TaskIx::new(i);
            for (position, dependency) in dependencies.iter().enumerate() {
                match by_id.get(*dependency) {
                    Some(&on) => pairs.push((task, on)),
                    None => faults.push(GraphFault::Unknown { task, position }),
                }
            }
        }
        let dependencies = Rows::build(rows.len(), &pairs);
        for pair in &mut pairs {
            *pair = (pair.1, pair.0);
        }
        let dependents = Rows::build(rows.len(), &pairs);
        let mut graph = Self { by_id, dependencies, dependents, order: Vec::new(), chain: Vec::new() };
        graph.sort(rows.len());
        if graph.order.len() < rows.len() {
            let found = cycles::cycles(rows.len(), |task| graph.dependencies.row(task));
            faults.extend(found.into_iter().map(GraphFault::Cycle));
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        graph.measure_chains();
        Ok(graph)
    }

    /// Kahn's algorithm over a queue kept in the file's order, so that equal inputs give equal orders.
    fn sort(&mut self, count: usize) {
        let mut unmet: Vec<u32> = (0..count)
            .map(|i| u32::try_from(self.dependencies.row(TaskIx::new(i)).len()).unwrap_or(u32::MAX))
            .collect();
        self.order = (0..count).filter(|&i| unmet[i] == 0).map(TaskIx::new).collect();
        let mut next = 0;
        while next < self.order.len() {
            let done = self.order[next];
            next += 1;
            for &dependent in self.dependents.row(done) {
                let left = &mut unmet[dependent.index()];
                *left -= 1;
                if *left == 0 {
                    self.order.push(dependent);
                }
            }
        }
    }

    fn measure_chains(&mut self) {
        self.chain = vec![0; self.order.len()];
        for &task in self.order.iter().rev() {
            let longest = self.dependents.row(task).iter().map(|d| self.chain[d.index()] + 1).max();
            self.chain[task.index()] = longest.unwrap_or(0);
        }
    }

    /// Finds a task by its exact id.
    pub fn find(&self, id: &str) -> Option<TaskIx> {
        self.by_id.get(id).copied()
    }

    /// What a task waits for, in the file's order.
    pub fn dependencies(&self, task: TaskIx) -> &[TaskIx] {
        self.dependencies.row(task)
    }

    /// What waits for a task.
    pub fn dependents(&self, task: TaskIx) -> &[TaskIx] {
        self.dependents.row(task)
    }

    /// Every task, dependencies first.
    pub fn topological(&self) -> &[TaskIx] {
        &self.order
    }

    /// The number of tasks in the longest chain that waits behind a task.
    pub fn chain_behind(&self, task: TaskIx) -> u32 {
        self.chain.get(task.index()).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(rows: &[(&str, &[&str])]) -> Result<Graph, Vec<GraphFault>> {
        let rows: Vec<(TaskId, Vec<TaskId>)> = rows
            .iter()
            .map(|(id, on)| {
                (TaskId::new(id).expect("valid"), on.iter().map(|d| TaskId::new(d).expect("valid")).collect())
            })
            .collect();
        Graph::build(rows.iter().map(|(id, on)| (id, on.iter())))
    }

    #[test]
    fn a_diamond_is_sorted_and_measured() {
        let graph = build(&[("d", &["b", "c"]), ("b", &["a"]), ("c", &["a"]), ("a", &[])]).expect("valid");
        let order: Vec<usize> = graph.topological().iter().map(|t| t.index()).collect();
        assert_eq!(order, [3, 1, 2, 0]);
        assert_eq!(graph.chain_behind(TaskIx::new(3)), 2);
        assert_eq!(graph.chain_behind(TaskIx::new(0)), 0);
        assert_eq!(graph.dependents(TaskIx::new(3)), [TaskIx::new(1), TaskIx::new(2)]);
    }

    #[test]
    fn self_dependency_cycle_and_unknown_are_all_told() {
        let faults = build(&[("a", &["a"]), ("b", &["c", "x"]), ("c", &["b"]), ("e", &["b"])]).expect_err("invalid");
        assert_eq!(
            faults,
            [
                GraphFault::Unknown { task: TaskIx::new(1), position: 1 },
                GraphFault::Cycle(vec![TaskIx::new(0)]),
                GraphFault::Cycle(vec![TaskIx::new(1), TaskIx::new(2)]),
            ]
        );
    }

    #[test]
    fn the_shortest_cycle_is_told_and_a_leading_tail_does_not_hide_it() {
        let faults = build(&[("t", &["a"]), ("a", &["b", "z"]), ("b", &["c"]), ("c", &["a"]), ("z", &["a"])])
            .expect_err("invalid");
        assert_eq!(faults, [GraphFault::Cycle(vec![TaskIx::new(1), TaskIx::new(4)])]);
    }

    #[test]
    fn a_chain_of_a_hundred_thousand_needs_no_stack() {
        let ids: Vec<TaskId> = (0..100_000).map(|i| TaskId::new(&format!("t{i}")).expect("valid")).collect();
        let graph =
            Graph::build(ids.iter().enumerate().map(|(i, id)| (id, i.checked_sub(1).map(|p| &ids[p])))).expect("valid");
        assert_eq!(graph.chain_behind(TaskIx::new(0)), 99_999);
    }
}
