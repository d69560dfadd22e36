//! Limits of every replicated state, and of the Raft group that carries it.

/// GPU kinds that one model has profiles for: 16 full profiles are 512 KiB and fit a command.
pub const PROFILE_KINDS_MAX: usize = 16;

/// Inputs, and outputs, of a model.
pub const TENSORS_MAX: usize = 64;

/// Bytes of a name (model, sub-cluster, backend, frontend, GPU kind, executor, tensor).
pub const NAME_BYTES_MAX: usize = 128;

/// Bytes of an address: a DNS name (253), a colon and a port.
pub const ADDRESS_BYTES_MAX: usize = 260;

/// Bytes of a path to a model's file.
pub const PATH_BYTES_MAX: usize = 1024;

/// Remembered operations with their replies, the latest ones in log order: a repetition is recognised until this many
/// others have been logged. Clients give up within two minutes, in which operators give far fewer commands.
pub const OPERATIONS_KEPT: usize = 1024;

/// Members of a group, voters and learners. More replicas make agreement slower, not safer.
pub const NODES_MAX: usize = 64;

/// Bytes of an encoded command. The largest is a plan of some thousand models at about 100 bytes each; etcd's limit is
/// 1.5 MiB.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;

/// Bytes of a state in a snapshot.
pub const SNAPSHOT_BYTES_MAX: usize = 64 << 20;

/// Loaded models.
pub const MODELS_MAX: usize = 4096;

/// Bytes of all loaded models' specifications together.
pub const MODEL_BYTES_TOTAL_MAX: usize = 20 << 20;
