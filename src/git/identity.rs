//! Who signs what we write.

use gix::actor::SignatureRef;

/// Author and committer of every commit and reflog entry of ours.
pub(super) const NAME: &str = "orchestrate";
/// Its address.
pub(super) const EMAIL: &str = "orchestrate@localhost";

/// Our signature at a time as git writes it.
pub(super) fn signature(time: &str) -> SignatureRef<'_> {
    SignatureRef { name: NAME.into(), email: EMAIL.into(), time }
}

/// Now, for reflogs and for commits whose date nothing else gives.
pub(super) fn now_as_git() -> String {
    gix::date::Time::now_utc().to_string()
}

/// A point in time as git writes it.
pub(super) fn at(seconds: i64) -> String {
    format!("{seconds} +0000")
}
