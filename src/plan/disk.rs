//! Whether there is space for another attempt. Pure: what is free was looked at before.

use std::fmt;

use crate::record::Space;

/// Files that must still be possible to make before anything is launched: a worktree of a usual repository.
const LEAST_INODES: u64 = 10_000;

/// Below this nothing is launched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskFloor {
    /// Bytes that must be free; 0: no floor at all.
    pub bytes: u64,
}

impl Default for DiskFloor {
    fn default() -> Self {
        Self { bytes: 1 << 30 }
    }
}

impl fmt::Display for DiskFloor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        let even = UNITS.into_iter().find(|(_, size)| self.bytes >= *size && self.bytes.is_multiple_of(*size));
        match even {
            Some((unit, size)) => write!(f, "{} {unit}", self.bytes / size),
            None => write!(f, "{} bytes", self.bytes),
        }
    }
}

/// What a file system has too little of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// Bytes.
    Bytes,
    /// Files.
    Inodes,
}

impl DiskFloor {
    /// What is below the floor.
    pub fn shortage(self, space: &Space) -> Option<Shortage> {
        if self.bytes == 0 {
            None
        } else if space.free_bytes < self.bytes {
            Some(Shortage::Bytes)
        } else if space.has_inodes() && space.total_inodes > 2 * LEAST_INODES && space.free_inodes < LEAST_INODES {
            // A file system that was never meant for so many is not judged by them.
            Some(Shortage::Inodes)
        } else {
            None
        }
    }
}

/// A file system that launches write to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// A path on it, for people.
    pub path: String,
    /// What it has left.
    pub space: Space,
}

/// Why nothing can be launched for want of space, without figures of the moment; `None`: there is enough.
pub fn disk_low(disks: &[Disk], floor: DiskFloor) -> Option<String> {
    disks.iter().find_map(|disk| {
        let path = &disk.path;
        Some(match floor.shortage(&disk.space)? {
            Shortage::Bytes => format!("less than {floor} is free at {path}; it goes on by itself when there is room"),
            Shortage::Inodes => {
                format!(
                    "fewer than {LEAST_INODES} files can be made at {path}; it goes on by itself when there is room"
                )
            }
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(free_bytes: u64, free_inodes: u64, total_inodes: u64) -> Disk {
        Disk { path: "/r".to_owned(), space: Space { free_bytes, total_bytes: 1 << 40, free_inodes, total_inodes } }
    }

    #[test]
    fn bytes_and_files_are_judged_and_what_is_not_counted_is_not() {
        let floor = DiskFloor { bytes: 1 << 20 };
        let low = |disk: Disk| disk_low(&[disk], floor);
        assert_eq!(low(disk(1 << 20, 100_000, 200_000)), None);
        assert!(
            low(disk((1 << 20) - 1, 100_000, 200_000)).is_some_and(|why| why.contains("less than 1 MiB is free at /r"))
        );
        assert!(low(disk(1 << 30, 9_999, 200_000)).is_some_and(|why| why.contains("10000 files")));
        assert_eq!(low(disk(1 << 30, 0, 0)), None, "btrfs counts none");
        assert_eq!(low(disk(1 << 30, 5, 1_000)), None, "a small file system for few files");
        assert_eq!(disk_low(&[disk(0, 0, 200_000)], DiskFloor { bytes: 0 }), None, "no floor");
        assert!(disk_low(&[disk(1 << 30, 100_000, 200_000), disk(0, 0, 0)], floor).is_some(), "any of them");
    }

    #[test]
    fn a_floor_is_told_as_it_was_given() {
        assert_eq!(DiskFloor::default().to_string(), "1 GiB");
        assert_eq!(DiskFloor { bytes: 1536 << 20 }.to_string(), "1536 MiB");
        assert_eq!(DiskFloor { bytes: 1000 }.to_string(), "1000 bytes");
    }
}
