//! Clients in closed loops: each sends its next request when the last one is answered. For benches/early_answers.py.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::Parser;
use hdrhistogram::Histogram;
use symphony_client::{Balance, Client, ElementType, Request, Tensor};

/// Answers per second and latencies of a model that some clients ask in closed loops, over gRPC.
#[derive(Debug, Parser)]
#[command(name = "closed-loop")]
struct Args {
    /// A frontend's host:port.
    #[arg(long)]
    frontend: String,
    /// The model; its inputs are zeros.
    #[arg(long)]
    model: String,
    /// How many requests are on their way at any time.
    #[arg(long, default_value_t = 1)]
    clients: u32,
    /// Connections that these share; by default one each.
    #[arg(long)]
    connections: Option<usize>,
    /// Seconds that count.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds before counting begins.
    #[arg(long, default_value_t = 2.0)]
    warmup_s: f64,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let args = Args::parse();
    let client = Client::builder()
        .frontend(args.frontend)
        .connections(args.connections.unwrap_or(args.clients as usize))
        .balance(Balance::RoundRobin)
        .build()?;
    client.connected(Duration::from_secs(5)).await?;
    let request = zeros(&client, &args.model).await?;
    let begins = Instant::now() + Duration::try_from_secs_f64(args.warmup_s)?;
    let ends = begins + Duration::try_from_secs_f64(args.seconds)?;
    let bad = Arc::new(AtomicU64::new(0));
    let loops: Vec<_> = (0..args.clients)
        .map(|_| tokio::spawn(ask_until(ends, begins, client.clone(), request.clone(), Arc::clone(&bad))))
        .collect();
    let mut latencies = Histogram::<u64>::new(3)?;
    for one in loops {
        latencies.add(one.await??)?;
    }
    ensure!(!latencies.is_empty(), "nothing was answered within {} s", args.seconds);
    let ms = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e6;
    let (per_second, bad) = (latencies.len() as f64 / args.seconds, bad.load(Ordering::Relaxed));
    let (p50, p99) = (ms(0.5), ms(0.99));
    println!("{{\"per_second\": {per_second:.1}, \"p50_ms\": {p50:.3}, \"p99_ms\": {p99:.3}, \"bad\": {bad}}}");
    Ok(())
}

/// One item of zeros in each of the model's inputs.
async fn zeros(client: &Client, model: &str) -> Result<Request> {
    let mut request = Request::new(model);
    for input in client.model_metadata(model).await?.inputs {
        let ElementType::Fixed(data_type) = input.element else {
            anyhow::bail!("input {} of {model} takes byte strings; expected numbers", input.name);
        };
        let shape = input.shape.iter().map(|&size| u64::try_from(size).unwrap_or(1)).collect::<Vec<_>>();
        let elements = shape.iter().try_fold(1_u64, |elements, size| elements.checked_mul(*size));
        let bytes = elements.and_then(|elements| usize::try_from(elements).ok()?.checked_mul(data_type.size_bytes()));
        let bytes = bytes.with_context(|| format!("input {} of {model} is too large: {shape:?}", input.name))?;
        request = request.input(Tensor::raw(input.name, input.element, &shape, vec![0; bytes].into())?);
    }
    Ok(request)
}

/// One client. Requests that end within the time count.
async fn ask_until(
    ends: Instant,
    begins: Instant,
    client: Client,
    request: Request,
    bad: Arc<AtomicU64>,
) -> Result<Histogram<u64>> {
    let mut latencies = Histogram::new(3)?;
    loop {
        let sent = Instant::now();
        let answered = client.infer(request.clone()).await;
        let now = Instant::now();
        if now >= ends {
            return Ok(latencies);
        }
        if now < begins {
            continue;
        }
        match answered {
            Ok(answer) if !answer.late => latencies.record(u64::try_from((now - sent).as_nanos())?)?,
            _ => {
                bad.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
