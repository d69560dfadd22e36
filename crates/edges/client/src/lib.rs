//! A client of Symphony's frontends: the Open Inference Protocol v2 over gRPC, with deadlines, retries and load
//! balancing.
//!
//! ```no_run
//! use std::time::Duration;
//! use symphony_client::{Client, Request, Tensor};
//!
//! # async fn example(pixels: Vec<f32>) -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder().frontend("10.0.0.1:8001").frontend("10.0.0.2:8001").build()?;
//! let request = Request::new("digits")
//!     .input(Tensor::new("pixels", &[1, 64], &pixels)?)
//!     .within(Duration::from_millis(100));
//! match client.infer(request).await {
//!     Ok(answer) => println!("it is a {}", answer.output("label")?.values::<i64>()?[0]),
//!     Err(error) if error.was_not_accepted() => println!("nothing has run: {error}"),
//!     Err(error) => println!("it may have run: {error}"),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Deadlines.** [`Request::within`] counts from the call of [`Client::infer`]; each attempt carries the remaining
//! time as the parameter `timeout`. The gRPC deadline is later by [`ClientBuilder::answer_grace`], so that the
//! frontend's own answer about a missed deadline still arrives. Without `within` the model's SLO holds.
//!
//! **Retries.** A request is sent to a second frontend only if the first one certainly did not accept it: there was no
//! connection, or the frontend refused it before giving it an id, and permitted a retry. A request that may have been
//! accepted is never sent again, so it runs at most once. Whether to repeat it is for the caller to decide: it knows
//! whether the model may run twice. Attempts are made one after the other.
//!
//! **Cancellation.** Dropping a future of [`Client::infer`] cancels its request, also at the frontend and the
//! scheduler.

mod answer;
mod backoff;
mod balance;
mod builder;
mod client;
mod error;
mod frontend;
pub mod limits;
mod pool;
mod request;
mod settings;
mod tensor;

pub use answer::{Answer, BadAnswer};
pub use balance::Balance;
pub use builder::ClientBuilder;
pub use client::{Client, ModelConfig, ModelMetadata, ServerMetadata, TensorMetadata};
pub use error::{Error, Refusal};
pub use frontend::{Availability, FrontendStatus};
pub use request::Request;
pub use settings::BuildError;
pub use tensor::{Element, ElementType, Tensor, TensorError};
