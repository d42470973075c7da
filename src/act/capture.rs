//! Keeps the beginning and the end of an output of any size in bounded memory.

/// Keeps the first `head` and the last `tail` bytes of what is pushed.
#[derive(Debug)]
pub struct Capture {
    head: Vec<u8>,
    tail: std::collections::VecDeque<u8>,
    head_max: usize,
    tail_max: usize,
    total: u64,
}

/// What was kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// Beginning, a line that tells what is missing, and end.
    pub bytes: Vec<u8>,
    /// Something in between was dropped.
    pub truncated: bool,
    /// Bytes that were pushed.
    pub total: u64,
}

impl Capture {
    /// With these sizes in bytes.
    pub fn new(head: usize, tail: usize) -> Self {
        Self { head: Vec::new(), tail: std::collections::VecDeque::new(), head_max: head, tail_max: tail, total: 0 }
    }

    /// Takes more output.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (first, rest) = bytes.split_at(bytes.len().min(self.head_max - self.head.len()));
        self.head.extend_from_slice(first);
        let rest = &rest[rest.len().saturating_sub(self.tail_max)..];
        let over = (self.tail.len() + rest.len()).saturating_sub(self.tail_max);
        self.tail.drain(..over);
        self.tail.extend(rest);
    }

    /// What was kept.
    pub fn finish(self) -> Captured {
        let kept = (self.head.len() + self.tail.len()) as u64;
        let truncated = kept < self.total;
        let mut bytes = self.head;
        if truncated {
            bytes.extend_from_slice(format!("\n[… {} bytes are left out here …]\n", self.total - kept).as_bytes());
        }
        bytes.extend(self.tail);
        Captured { bytes, truncated, total: self.total }
    }
}
