//! What a file system has left, as plain data.

/// Space of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes that somebody other than root may still write.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// Files that can still be made.
    pub free_inodes: u64,
    /// Files in all; 0: the file system keeps no count.
    pub total_inodes: u64,
}

impl Space {
    /// Whether the number of files is limited at all.
    pub fn has_inodes(&self) -> bool {
        self.total_inodes > 0
    }
}
