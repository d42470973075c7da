//! The file systems that launches write to.

use std::path::PathBuf;

use crate::git::RepositoryLayout;
use crate::observe::names;
use crate::plan::Disk;
use crate::record::Files;

/// What is free where worktrees are made and where the state dir is. The nearest folder that exists tells.
pub(super) fn disks(files: &dyn Files, layout: &RepositoryLayout) -> Vec<Disk> {
    let worktrees = layout.root.join(names::WORKTREES);
    let mut places = vec![worktrees, names::state_dir(&layout.common_dir)];
    for place in &mut places {
        while !matches!(files.stamp(place), Ok(Some(_))) {
            let Some(above) = place.parent().map(PathBuf::from) else { break };
            *place = above;
        }
    }
    places.dedup();
    let disk = |place: PathBuf| Some(Disk { space: files.space(&place)?, path: place.display().to_string() });
    places.into_iter().filter_map(disk).collect()
}
