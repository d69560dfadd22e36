//! A client of Symphony's frontends: the Open Inference Protocol v2 over gRPC, with what a service needs around it.
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
//! **Deadlines.** [`Request::within`] counts from the call of [`Client::infer`]; what is left of it goes with each
//! attempt as the parameter `timeout`. The gRPC deadline is later by [`ClientBuilder::answer_grace`], so that the
//! frontend's own word about a deadline (why it was missed) still arrives. Without `within` the model's SLO holds.
//!
//! **Retries.** A request is sent to a second frontend only if it is certain that the first one did not accept it: the
//! connection could not be made, or the frontend refused it before it had a name, and said that it may be tried again.
//! A request that may have been accepted is never sent again, so it runs once and is answered once; whether to ask anew
//! is for the caller, who knows whether the model may run twice. Attempts follow one another: there is never more than
//! one.
//!
//! **Leaving.** A future of [`Client::infer`] that is dropped cancels its request, also at the frontend and the
//! scheduler.

mod answer;
mod backoff;
mod balance;
mod builder;
mod client;
mod error;
mod frontend;
mod pool;
mod request;
mod tensor;

pub use answer::{Answer, BadAnswer};
pub use balance::Balance;
pub use builder::{BuildError, ClientBuilder, limits};
pub use client::{Client, ModelMetadata, ServerMetadata, TensorMetadata};
pub use error::{Error, Refusal};
pub use frontend::{FrontendStatus, Standing};
pub use request::Request;
pub use tensor::{Element, ElementType, Tensor, TensorError};
