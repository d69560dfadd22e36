//! Forwards reads and writes of a stream that is an enum of several.

/// Implements `tokio::io::AsyncRead` for a type whose field is an enum with a stream in each of the named variants.
macro_rules! forward_read {
    ($type:ty, $field:tt, $side:ident { $($variant:ident),+ }) => {
        impl ::tokio::io::AsyncRead for $type {
            fn poll_read(
                mut self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                buf: &mut ::tokio::io::ReadBuf<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match &mut self.$field {
                    $($side::$variant(stream) => ::std::pin::Pin::new(stream).poll_read(cx, buf),)+
                }
            }
        }
    };
}

/// Implements `tokio::io::AsyncWrite` in the same way.
macro_rules! forward_write {
    ($type:ty, $field:tt, $side:ident { $($variant:ident),+ }) => {
        impl ::tokio::io::AsyncWrite for $type {
            fn poll_write(
                mut self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                buf: &[u8],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                match &mut self.$field {
                    $($side::$variant(stream) => ::std::pin::Pin::new(stream).poll_write(cx, buf),)+
                }
            }

            fn poll_flush(
                mut self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match &mut self.$field {
                    $($side::$variant(stream) => ::std::pin::Pin::new(stream).poll_flush(cx),)+
                }
            }

            fn poll_shutdown(
                mut self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match &mut self.$field {
                    $($side::$variant(stream) => ::std::pin::Pin::new(stream).poll_shutdown(cx),)+
                }
            }
        }
    };
}

pub(crate) use {forward_read, forward_write};
