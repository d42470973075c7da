//! What `run --listen` serves: metrics, health, the status as JSON, a stream of events, a page. Read-only. It reads what the
//! loop left on the board and runs on a thread of its own, so that no client can delay a pass. `specs/http.md` describes it.

mod board;
mod feed;
mod host;
mod listen;
mod many;
mod page;
mod parts;
mod router;
mod server;
mod tail;
mod task_page;
mod token;

pub use board::{Board, Health};
pub use host::{Hosts, Refusal};
pub use listen::{Listen, ListenError};
pub use many::{Boards, Sites};
pub use router::{Gate, Site, router};
pub use server::{Server, ServerOptions};
pub use tail::{LogTail, Tail};
pub use token::{Token, TokenError};
