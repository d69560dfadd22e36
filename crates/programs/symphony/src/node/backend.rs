//! `symphony backend`: GPUs, real or emulated.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use symphony_backend::{Backend, StartError};
use symphony_config::{NodeConfig, Role};
use symphony_executor::RuntimeError;
use symphony_telemetry::Registry;
use symphony_transport::ControlClient;
use tokio_util::sync::CancellationToken;

use super::certificates::Certificates;
use super::{
    DRAIN_WITHIN, begin, bind, control_addrs, frames, fresh_boot, no_neighbour, page, security, until_told_to_stop,
};
use crate::cli::BackendArgs;
use crate::exit::bad_input;

pub(crate) async fn run(args: BackendArgs) -> anyhow::Result<()> {
    let BackendArgs { node: mut args, noise } = args;
    // After the other sources, so that it overrides them.
    args.set.extend(noise.map(|sigma| format!("backend.noise={sigma:?}")));
    let Some(config) = begin(&args, Role::Backend)? else { return Ok(()) };
    let NodeConfig { backend: Some(own), .. } = &config else {
        return Err(bad_input("the configuration has no [backend]"));
    };
    let exec = bind("backend.exec", &own.exec).await?;
    let metrics = bind("backend.metrics", &own.metrics).await?;
    let registry = Registry::new("backend");
    let carriers = frames::carriers(&config.frames, &registry)?;
    let net = security::net(&config, symphony_net::Role::Backend, &own.name, &Certificates::shown_in(&registry))?
        .carried(carriers.clone());
    let control = ControlClient::new(&net, &control_addrs(&config))?;
    let levels = [net.level().clone()];
    let backend = Backend::start(own, fresh_boot(), exec, net.clone(), control).await.map_err(|error| match error {
        // A file that was named but is not the library is bad input; if no library is found, the machine is at fault. A
        // device that is required or named by the executor but absent is bad input, too.
        StartError::Runtime(RuntimeError::Unusable { .. })
        | StartError::Journal { .. }
        | StartError::Device(_)
        | StartError::Gemm(_) => bad_input(error),
        other => other.into(),
    })?;
    symphony_backend::register_metrics(&registry, &backend);

    let (view, name) = (backend.view(), own.name.clone());
    let console = super::console(("backend", name.as_str()), &net, &config, &view)?;
    let payloads = backend.payloads();
    let backend = Arc::new(backend);
    let (ready, views) = (Arc::clone(&backend), backend.view());
    // Once only: a model that comes later is no reason to stop a roll-out, and is not ready by itself.
    let is_started = AtomicBool::new(false);
    let surface = super::surface(registry, &config, &own.metrics)
        .with_readiness(move || {
            if is_started.load(Ordering::Relaxed) {
                return Ok(());
            }
            if views.borrow().applied_index == 0 {
                return Err("the cluster's view has not arrived".into());
            }
            match ready.models_loading() {
                0 => is_started.store(true, Ordering::Relaxed),
                loading => return Err(format!("{loading} models are still loading")),
            }
            Ok(())
        })
        .with_view(move || {
            let mut page = page::view_json(&view.borrow(), "backend", &name, &|_| serde_json::json!({}));
            page["payloads"] = page::payloads_json(&payloads.readings());
            page["frames"] = frames::json(&carriers);
            page
        })
        .with_console(move |question| console.answer(question));
    let stop = CancellationToken::new();
    let serving = tokio::spawn(symphony_telemetry::serve(metrics, surface, stop.clone().cancelled_owned()));
    let broken = tokio::select! {
        stopped = until_told_to_stop(Vec::new()) => stopped.map(|()| None)?,
        why = backend.needs_restart() => Some(anyhow::anyhow!("{why}: it is to be started anew")),
        error = no_neighbour(&levels) => Some(error),
    };
    backend.leave(DRAIN_WITHIN).await;
    backend.stop();
    stop.cancel();
    let _ = serving.await;
    // The service manager restarts the process.
    broken.map_or(Ok(()), Err)
}
