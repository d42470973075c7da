//! Several reporters as one.

use crate::controller::{Beat, Level, Reporter, Snapshot, Trouble};

/// Tells all, in their order.
pub struct All<'a>(pub Vec<&'a mut dyn Reporter>);

impl Reporter for All<'_> {
    fn pass(&mut self, snapshot: &Snapshot) {
        self.0.iter_mut().for_each(|reporter| reporter.pass(snapshot));
    }

    fn beat(&mut self, beat: &Beat) {
        self.0.iter_mut().for_each(|reporter| reporter.beat(beat));
    }

    fn trouble(&mut self, trouble: Trouble) {
        self.0.iter_mut().for_each(|reporter| reporter.trouble(trouble));
    }

    fn notice(&mut self, level: Level, message: &str) {
        self.0.iter_mut().for_each(|reporter| reporter.notice(level, message));
    }
}
