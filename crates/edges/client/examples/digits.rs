//! Asks for the digit on a picture: `cargo run -p symphony-client --example digits -- PICTURE FRONTEND…`, where
//! `symphony up --with-models` runs.

use std::time::Duration;

use symphony_client::{Client, Request, Tensor};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let file = args.next().unwrap_or_else(|| "deploy/models/digits/seven.png".to_owned());
    let mut frontends: Vec<_> = args.collect();
    if frontends.is_empty() {
        frontends.push("127.0.0.1:8001".to_owned());
    }
    let client =
        frontends.into_iter().fold(Client::builder(), |builder, frontend| builder.frontend(frontend)).build()?;
    client.connected(Duration::from_secs(5)).await?;

    let picture = Tensor::bytes("pixels", &[1], &[std::fs::read(&file)?])?;
    let request = Request::new("digits").input(picture).classification("probabilities", 1);
    match client.infer(request.within(Duration::from_millis(200))).await {
        Ok(answer) => {
            let classes = answer.output("probabilities")?.byte_strings()?;
            println!("{file}: {}", String::from_utf8_lossy(&classes[0]));
        }
        Err(error) if error.was_not_accepted() => println!("nothing has run: {error}"),
        Err(error) => println!("it may have run: {error}"),
    }
    Ok(())
}
