//! Docker-compatible engines, through their API.
