//! Groups of replicas in one process.

mod any_replica_answers;
mod leaders_move;
mod members_change;
mod neighbouring_releases;
mod operations_are_done_once;
mod replicas_die;
mod replicas_lag;
mod scene;
