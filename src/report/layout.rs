//! Where each task stands when the plan is drawn: layers from left to right, few crossings, and the critical path. Pure.
//!
//! The usual steps: longest-path layering, points on the way for edges that pass layers, a few sweeps that sort each layer
//! by where its neighbours stand, then heights. Large plans are drawn as a grid of squares without edges, where neither
//! names nor lines could be read.

use std::collections::HashMap;

use super::view::View;

/// Above so many tasks the picture is a grid of squares.
pub const COMPACT_ABOVE: usize = 150;
/// Points on the way of edges, above which edges go straight: a plan with so many is a tangle either way.
const MAX_BENDS: usize = 3_000;
const SWEEPS: usize = 6;

const NODE_WIDTH: f64 = 184.0;
const NODE_HEIGHT: f64 = 44.0;
const LAYER_GAP: f64 = 56.0;
const ROW_GAP: f64 = 14.0;
const BEND_HEIGHT: f64 = 8.0;
const MARGIN: f64 = 8.0;
const SQUARE: f64 = 12.0;
const SQUARE_GAP: f64 = 3.0;
const SQUARE_ROWS: usize = 32;

/// The plan as a drawing.
#[derive(Debug, Clone, PartialEq)]
pub struct Layout {
    /// Every task, in the view's order.
    pub nodes: Vec<Node>,
    /// Every dependency; none in a compact picture.
    pub edges: Vec<Edge>,
    /// Tasks of the chain that takes longest, first one first.
    pub critical: Vec<usize>,
    /// Squares instead of boxes.
    pub compact: bool,
    /// Layers.
    pub layers: usize,
    /// Of the whole picture.
    pub width: f64,
    /// Of the whole picture.
    pub height: f64,
}

/// A task's box.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[expect(missing_docs, reason = "left, top, width and height")]
pub struct Node {
    /// From 0.
    pub layer: usize,
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// A dependency's line.
#[derive(Debug, Clone, PartialEq)]
pub struct Edge {
    /// The task that is depended on.
    pub from: usize,
    /// The task that depends on it.
    pub to: usize,
    /// Where it passes, ends included.
    pub points: Vec<(f64, f64)>,
    /// Lies on the critical path.
    pub critical: bool,
}

/// The dependencies by number.
struct Graph {
    dependencies: Vec<Vec<usize>>,
    dependents: Vec<Vec<usize>>,
    /// Dependencies first.
    order: Vec<usize>,
    layers: Vec<usize>,
}

impl Graph {
    fn of(view: &View) -> Self {
        let numbers: HashMap<&str, usize> =
            view.tasks.iter().enumerate().map(|(number, task)| (task.id.as_str(), number)).collect();
        let count = view.tasks.len();
        let mut graph = Self {
            dependencies: vec![Vec::new(); count],
            dependents: vec![Vec::new(); count],
            order: Vec::with_capacity(count),
            layers: vec![0; count],
        };
        for (number, task) in view.tasks.iter().enumerate() {
            for &on in task.dependencies.iter().filter_map(|on| numbers.get(on.as_str())) {
                if on != number && !graph.dependencies[number].contains(&on) {
                    graph.dependencies[number].push(on);
                    graph.dependents[on].push(number);
                }
            }
        }
        let mut unmet: Vec<usize> = graph.dependencies.iter().map(Vec::len).collect();
        graph.order.extend((0..count).filter(|task| unmet[*task] == 0));
        let mut at = 0;
        while let Some(&task) = graph.order.get(at) {
            at += 1;
            for &next in &graph.dependents[task] {
                graph.layers[next] = graph.layers[next].max(graph.layers[task] + 1);
                unmet[next] -= 1;
                if unmet[next] == 0 {
                    graph.order.push(next);
                }
            }
        }
        graph
    }

    fn depth(&self) -> usize {
        self.layers.iter().max().map_or(0, |last| last + 1)
    }

    /// The chain of tasks that takes longest: by how long each ran, or for those that have not by what is usual.
    fn critical(&self, view: &View) -> Vec<usize> {
        let mut known: Vec<u64> = view.tasks.iter().filter_map(|task| task.seconds).collect();
        known.sort_unstable();
        let usual = known.get(known.len() / 2).copied().unwrap_or(1).max(1);
        let cost = |task: usize| view.tasks[task].seconds.unwrap_or(usual).max(1);
        let mut best: Vec<(u64, Option<usize>)> = vec![(0, None); view.tasks.len()];
        for &task in &self.order {
            let before = self.dependencies[task].iter().map(|&on| (best[on].0, Some(on))).max_by_key(|(cost, _)| *cost);
            let (cost_before, on) = before.unwrap_or((0, None));
            best[task] = (cost_before + cost(task), on);
        }
        let mut at = self.order.iter().copied().max_by_key(|&task| best[task].0);
        let mut chain = Vec::new();
        while let Some(task) = at {
            chain.push(task);
            at = best[task].1;
        }
        chain.reverse();
        chain
    }
}

/// Lays the plan out.
pub fn layout(view: &View) -> Layout {
    let graph = Graph::of(view);
    let critical = graph.critical(view);
    if view.tasks.len() > COMPACT_ABOVE {
        return compact(&graph, critical);
    }
    Drawing::of(&graph).finish(&graph, critical)
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

fn compact(graph: &Graph, critical: Vec<usize>) -> Layout {
    const STEP: f64 = SQUARE + SQUARE_GAP;
    let mut layers = vec![Vec::new(); graph.depth()];
    for (task, layer) in graph.layers.iter().enumerate() {
        layers[*layer].push(task);
    }
    let mut nodes = vec![Node::default(); graph.layers.len()];
    let (mut x, mut height) = (MARGIN, 0.0f64);
    for (layer, tasks) in layers.iter().enumerate() {
        let columns = tasks.len().div_ceil(SQUARE_ROWS);
        let rows = tasks.len().div_ceil(columns.max(1));
        for (place, &task) in tasks.iter().enumerate() {
            let (column, row) = (place / rows, place % rows);
            let y = MARGIN + as_f64(row) * STEP;
            nodes[task] = Node { layer, x: x + as_f64(column) * STEP, y, width: SQUARE, height: SQUARE };
            height = height.max(y + SQUARE);
        }
        x += as_f64(columns) * STEP + STEP;
    }
    let layers = layers.len();
    Layout { nodes, edges: Vec::new(), critical, compact: true, layers, width: x, height: height + MARGIN }
}

/// The layers while they are sorted. Points below the number of tasks are tasks, the others bends.
struct Drawing {
    tasks: usize,
    layers: Vec<Vec<usize>>,
    left: Vec<Vec<usize>>,
    right: Vec<Vec<usize>>,
    /// For each dependency `(from, to)` its bends, from left to right.
    lines: Vec<(usize, usize, Vec<usize>)>,
    y: Vec<f64>,
}

impl Drawing {
    fn of(graph: &Graph) -> Self {
        let tasks = graph.layers.len();
        let mut drawing = Self {
            tasks,
            layers: vec![Vec::new(); graph.depth()],
            left: vec![Vec::new(); tasks],
            right: vec![Vec::new(); tasks],
            lines: Vec::new(),
            y: Vec::new(),
        };
        for (task, layer) in graph.layers.iter().enumerate() {
            drawing.layers[*layer].push(task);
        }
        let edges = || (0..tasks).flat_map(|to| graph.dependencies[to].iter().map(move |&from| (from, to)));
        let span = |(from, to): (usize, usize)| graph.layers[to] - graph.layers[from];
        let bends: usize = edges().map(|edge| span(edge).saturating_sub(1)).sum();
        for (from, to) in edges() {
            let mut line = Vec::new();
            let mut last = from;
            if bends <= MAX_BENDS {
                for layer in graph.layers[from] + 1..graph.layers[to] {
                    let bend = drawing.left.len();
                    drawing.left.push(Vec::new());
                    drawing.right.push(Vec::new());
                    drawing.layers[layer].push(bend);
                    drawing.join(last, bend);
                    line.push(bend);
                    last = bend;
                }
            }
            if span((from, to)) == 1 || !line.is_empty() {
                drawing.join(last, to);
            }
            drawing.lines.push((from, to, line));
        }
        drawing.sort();
        drawing.place();
        drawing
    }

    fn join(&mut self, left: usize, right: usize) {
        self.right[left].push(right);
        self.left[right].push(left);
    }

    fn sort(&mut self) {
        let mut place = vec![0.0; self.left.len()];
        let number = |layer: &[usize], place: &mut [f64]| {
            for (at, &point) in layer.iter().enumerate() {
                place[point] = as_f64(at);
            }
        };
        for layer in &self.layers {
            number(layer, &mut place);
        }
        let depth = self.layers.len();
        for sweep in 0..SWEEPS {
            let forward = sweep % 2 == 0;
            for step in 0..depth {
                let layer = if forward { step } else { depth - 1 - step };
                let neighbours = if forward { &self.left } else { &self.right };
                let mut keyed: Vec<(f64, usize)> = self.layers[layer]
                    .iter()
                    .map(|&point| (mean(&neighbours[point], &place).unwrap_or(place[point]), point))
                    .collect();
                keyed.sort_by(|a, b| a.0.total_cmp(&b.0));
                self.layers[layer] = keyed.into_iter().map(|(_, point)| point).collect();
                number(&self.layers[layer], &mut place);
            }
        }
    }

    fn height(&self, point: usize) -> f64 {
        if point < self.tasks { NODE_HEIGHT } else { BEND_HEIGHT }
    }

    /// The least distance of two neighbours' middles.
    fn apart(&self, above: usize, below: usize) -> f64 {
        f64::midpoint(self.height(above), self.height(below)) + ROW_GAP
    }

    /// Middles: stacked first, then drawn towards their neighbours with the order kept.
    fn place(&mut self) {
        self.y = vec![0.0; self.left.len()];
        for layer in &self.layers {
            let mut y = 0.0;
            for (at, &point) in layer.iter().enumerate() {
                if at > 0 {
                    y += self.apart(layer[at - 1], point);
                }
                self.y[point] = y;
            }
        }
        for sweep in 0..2 * SWEEPS {
            for step in 0..self.layers.len() {
                let layer = if sweep % 2 == 0 { step } else { self.layers.len() - 1 - step };
                let neighbours = if sweep % 2 == 0 { &self.left } else { &self.right };
                let wished: Vec<f64> = self.layers[layer]
                    .iter()
                    .map(|&point| mean(&neighbours[point], &self.y).unwrap_or(self.y[point]))
                    .collect();
                let placed = self.spread(&self.layers[layer], &wished);
                for (&point, y) in self.layers[layer].iter().zip(placed) {
                    self.y[point] = y;
                }
            }
        }
        self.squeeze();
    }

    /// Moves everything to the top, and takes out what stands empty across the whole picture.
    fn squeeze(&mut self) {
        let mut points: Vec<usize> = self.layers.iter().flatten().copied().collect();
        points.sort_by(|a, b| self.y[*a].total_cmp(&self.y[*b]));
        let mut lowest = 0.0f64;
        let mut shift = 0.0;
        for (at, &point) in points.iter().enumerate() {
            let half = self.height(point) / 2.0;
            let gap = if at == 0 { MARGIN } else { 2.0 * ROW_GAP };
            let top = self.y[point] - half - shift;
            if at == 0 || top > lowest + gap {
                shift += top - lowest - gap;
            }
            self.y[point] -= shift;
            lowest = lowest.max(self.y[point] + half);
        }
    }

    /// As near to what is wished as order and distances allow: the mean of pushing down from above and up from below.
    fn spread(&self, layer: &[usize], wished: &[f64]) -> Vec<f64> {
        let mut down = wished.to_vec();
        for at in 1..layer.len() {
            down[at] = down[at].max(down[at - 1] + self.apart(layer[at - 1], layer[at]));
        }
        let mut up = wished.to_vec();
        for at in (1..layer.len()).rev() {
            up[at - 1] = up[at - 1].min(up[at] - self.apart(layer[at - 1], layer[at]));
        }
        down.iter().zip(&up).map(|(down, up)| f64::midpoint(*down, *up)).collect()
    }

    fn finish(&self, graph: &Graph, critical: Vec<usize>) -> Layout {
        let left = |layer: usize| MARGIN + as_f64(layer) * (NODE_WIDTH + LAYER_GAP);
        let node = |task: usize| Node {
            layer: graph.layers[task],
            x: left(graph.layers[task]),
            y: self.y[task] - NODE_HEIGHT / 2.0,
            width: NODE_WIDTH,
            height: NODE_HEIGHT,
        };
        let nodes: Vec<Node> = (0..self.tasks).map(node).collect();
        let edge = |(from, to, bends): &(usize, usize, Vec<usize>)| {
            let mut points = vec![(nodes[*from].x + NODE_WIDTH, self.y[*from])];
            for (layer, bend) in (graph.layers[*from] + 1..).zip(bends) {
                points.push((left(layer), self.y[*bend]));
                points.push((left(layer) + NODE_WIDTH, self.y[*bend]));
            }
            points.push((nodes[*to].x, self.y[*to]));
            let critical = critical.windows(2).any(|pair| pair == [*from, *to]);
            Edge { from: *from, to: *to, points, critical }
        };
        let edges = self.lines.iter().map(edge).collect();
        let lowest = self.layers.iter().flatten().map(|&point| self.y[point] + self.height(point) / 2.0);
        Layout {
            edges,
            critical,
            compact: false,
            layers: self.layers.len(),
            width: left(self.layers.len()) - LAYER_GAP + MARGIN,
            height: lowest.fold(0.0, f64::max) + MARGIN,
            nodes,
        }
    }
}

fn mean(points: &[usize], of: &[f64]) -> Option<f64> {
    let sum: f64 = points.iter().map(|&point| of[point]).sum();
    (!points.is_empty()).then(|| sum / as_f64(points.len()))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::status::Status;

    /// A view of tasks with these dependencies; how long each ran, where it did.
    pub(crate) fn view(tasks: &[(&str, &[&str], Option<u64>)]) -> View {
        let tasks: Vec<serde_json::Value> = tasks
            .iter()
            .map(|(id, on, seconds)| {
                let status = if seconds.is_some() { Status::Completed } else { Status::Pending };
                serde_json::json!({
                    "id": id, "status": status, "dependencies": on, "waits_for": [], "agent": "shell", "attempt": 0,
                    "seconds": seconds, "stale": false, "spec_changed": false,
                })
            })
            .collect();
        let summary = serde_json::json!({
            "total": tasks.len(), "pending": tasks.len(), "running": 0, "completed": 0, "failed": 0, "blocked": 0,
            "cancelled": 0, "stale": 0, "orphans": 0,
        });
        serde_json::from_value(serde_json::json!({
            "format": 1, "project": "p", "at": "2030-01-02T03:04:05Z", "max_concurrent": 3, "suspended": false,
            "summary": summary, "next": [], "tasks": tasks, "orphans": [], "warnings": [],
        }))
        .expect("a view")
    }

    fn overlap(a: &Node, b: &Node) -> bool {
        a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height
    }

    fn ladder(count: usize) -> View {
        let names: Vec<String> = (0..count).map(|n| format!("t{n}")).collect();
        let on: Vec<Vec<&str>> = (0..count)
            .map(|n| {
                [n / 2, n / 3, n.saturating_sub(7)].into_iter().filter(|on| *on < n).map(|on| &*names[on]).collect()
            })
            .collect();
        let tasks: Vec<_> = (0..count).map(|n| (&*names[n], &*on[n], (n % 3 == 0).then_some(n as u64))).collect();
        view(&tasks)
    }

    #[test]
    fn nothing_overlaps_everything_is_inside_and_edges_go_to_the_right() {
        for count in [1, 7, 60, COMPACT_ABOVE, COMPACT_ABOVE + 1, 2_000] {
            let view = ladder(count);
            let layout = layout(&view);
            assert_eq!(layout.compact, count > COMPACT_ABOVE);
            for (at, a) in layout.nodes.iter().enumerate() {
                assert!(a.x >= 0.0 && a.y >= 0.0 && a.x + a.width <= layout.width && a.y + a.height <= layout.height);
                assert!(!layout.nodes[at + 1..].iter().any(|b| overlap(a, b)), "{count}: task {at} overlaps");
            }
            for edge in &layout.edges {
                assert!(layout.nodes[edge.from].layer < layout.nodes[edge.to].layer);
                assert!(edge.points.windows(2).all(|pair| pair[0].0 < pair[1].0), "{edge:?}");
            }
        }
    }

    #[test]
    fn the_critical_path_is_the_chain_that_takes_longest_not_the_one_with_most_tasks() {
        let view = view(&[
            ("a", &[], Some(10)),
            ("b", &["a"], Some(10)),
            ("c", &["b"], Some(10)),
            ("slow", &["a"], Some(500)),
            ("end", &["c", "slow"], None),
        ]);
        let layout = layout(&view);
        assert_eq!(layout.critical, [0, 3, 4]);
        let critical: Vec<_> = layout.edges.iter().filter(|edge| edge.critical).map(|e| (e.from, e.to)).collect();
        assert_eq!(critical, [(0, 3), (3, 4)]);
    }

    #[test]
    fn an_empty_plan_and_unknown_or_repeated_dependencies_are_drawn() {
        assert!(layout(&view(&[])).nodes.is_empty());
        let layout = layout(&view(&[("a", &["gone", "a"], None), ("b", &["a", "a"], None)]));
        assert_eq!(layout.edges.len(), 1);
    }

    #[test]
    fn the_same_view_gives_the_same_picture() {
        assert_eq!(layout(&ladder(60)), layout(&ladder(60)));
    }
}
