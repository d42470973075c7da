//! Two reporters as one.

use crate::controller::{Beat, Level, Reporter, Snapshot, Trouble};

/// Tells both.
pub struct Both<'a>(pub &'a mut dyn Reporter, pub &'a mut dyn Reporter);

impl Reporter for Both<'_> {
    fn pass(&mut self, snapshot: &Snapshot) {
        self.0.pass(snapshot);
        self.1.pass(snapshot);
    }

    fn beat(&mut self, beat: &Beat) {
        self.0.beat(beat);
        self.1.beat(beat);
    }

    fn trouble(&mut self, trouble: Trouble) {
        self.0.trouble(trouble);
        self.1.trouble(trouble);
    }

    fn notice(&mut self, level: Level, message: &str) {
        self.0.notice(level, message);
        self.1.notice(level, message);
    }
}
