//! Landlock: what may be written, by any program and in any way, whatever the user's rights.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, CompatLevel, Compatible, LandlockStatus, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetError, RulesetStatus, Scope, path_beneath_rules,
};

/// The newest version that we know what to do with; older kernels get what they have.
const NEWEST: ABI = ABI::V9;

/// Restricts this process and all its children for good: everything may be read and run, only `writable` be written.
/// The version in force; `None` where the kernel has none.
pub(in super::super) fn restrict(writable: &[PathBuf]) -> Result<Option<u32>, RulesetError> {
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?;
    let status = ruleset
        .create()?
        .add_rules(path_beneath_rules(["/"], AccessFs::from_read(NEWEST)))?
        .add_rules(path_beneath_rules(writable, AccessFs::from_all(NEWEST)))?
        .restrict_self()?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => None,
        (_, LandlockStatus::Available { effective_abi, .. }) => Some(number(effective_abi)),
        _ => None,
    })
}

fn number(abi: ABI) -> u32 {
    // The enum's own numbers are the kernel's.
    abi as u32
}
