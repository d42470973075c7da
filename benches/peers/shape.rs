//! Plans to race over: which task waits for which, and how long each runs.

use fastrand::Rng;

/// A plan in the fewest words.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    /// Names the row.
    pub(crate) name: String,
    /// In the file's order.
    pub(crate) tasks: Vec<Node>,
}

/// A task.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) id: String,
    /// Indices of earlier tasks.
    pub(crate) needs: Vec<usize>,
    /// How long it sleeps; 0: it is `true`.
    pub(crate) seconds: f64,
}

impl Node {
    pub(crate) fn command(&self) -> Vec<String> {
        if self.seconds > 0.0 {
            vec!["sleep".to_owned(), format!("{:.2}", self.seconds)]
        } else {
            vec!["true".to_owned()]
        }
    }
}

fn node(i: usize, needs: Vec<usize>, seconds: f64) -> Node {
    Node { id: format!("t{i}"), needs, seconds }
}

impl Shape {
    /// Layers of equal width; each task waits for two of the layer before.
    pub(crate) fn layers(count: usize, width: usize) -> Self {
        let needs = |i: usize| {
            let (layer, place) = (i / width, i % width);
            let before = |place: usize| (layer - 1) * width + place % width;
            let mut needs = if layer == 0 { Vec::new() } else { vec![before(place), before(place + 1)] };
            needs.sort_unstable();
            needs.dedup();
            needs
        };
        let tasks = (0..count * width).map(|i| node(i, needs(i), 0.0)).collect();
        Self { name: format!("{} tasks in {count} layers", count * width), tasks }
    }

    /// Each task waits for up to three earlier ones.
    pub(crate) fn random(count: usize, seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let tasks = (0..count).map(|i| node(i, needs(&mut rng, i), 0.0)).collect();
        Self { name: format!("random {count} tasks"), tasks }
    }

    /// The same with lengths between a tenth and two and a half seconds, most of them short.
    pub(crate) fn unequal(count: usize, seed: u64) -> Self {
        let mut shape = Self::random(count, seed);
        let mut rng = Rng::with_seed(seed ^ 1);
        for task in &mut shape.tasks {
            task.seconds = 0.1 + 2.4 * rng.f64() * rng.f64();
        }
        shape.name = format!("random {count} tasks of unequal length");
        shape
    }

    /// One after the other.
    pub(crate) fn chain(count: usize) -> Self {
        let tasks = (0..count).map(|i| node(i, i.checked_sub(1).into_iter().collect(), 0.0)).collect();
        Self { name: format!("chain of {count}"), tasks }
    }

    /// All at once.
    pub(crate) fn flat(count: usize) -> Self {
        Self { name: format!("{count} tasks"), tasks: (0..count).map(|i| node(i, Vec::new(), 0.0)).collect() }
    }

    /// Seconds of the longest chain.
    pub(crate) fn critical_path(&self) -> f64 {
        let mut ends: Vec<f64> = Vec::new();
        for task in &self.tasks {
            let begin = task.needs.iter().map(|need| ends[*need]).fold(0.0, f64::max);
            ends.push(begin + task.seconds);
        }
        ends.into_iter().fold(0.0, f64::max)
    }

    /// Seconds of all work.
    pub(crate) fn work(&self) -> f64 {
        self.tasks.iter().map(|task| task.seconds).sum()
    }
}

fn needs(rng: &mut Rng, i: usize) -> Vec<usize> {
    let mut needs: Vec<usize> = (0..rng.usize(..4).min(i)).map(|_| rng.usize(..i)).collect();
    needs.sort_unstable();
    needs.dedup();
    needs
}
