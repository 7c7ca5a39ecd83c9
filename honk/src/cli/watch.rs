//! Redrawing a screen until interrupted.

use std::{future::Future, time::Duration};

use super::{Session, args::Watch, exit::Failure};

/// Draws once, or again and again with `--watch`.
pub(crate) async fn redraw<F, R>(session: &Session, watch: Watch, draw: F) -> Result<(), Failure>
where
    F: Fn() -> R,
    R: Future<Output = Result<(), Failure>>,
{
    let Some(seconds) = watch.watch else {
        return draw().await;
    };
    let mut ticks = tokio::time::interval(Duration::from_secs(seconds));
    loop {
        ticks.tick().await;
        if session.out.width.is_some() && !session.out.json {
            // Home and clear below: less flicker than clearing the whole screen first.
            session.out.text("\x1b[H\x1b[J")?;
        }
        draw().await?;
    }
}
