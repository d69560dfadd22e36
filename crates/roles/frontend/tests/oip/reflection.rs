//! What is served here, as clients without our protocol files find it out.

use futures::StreamExt;
use prost::Message as _;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServiceResponse};
use tonic_reflection::pb::v1alpha;

use super::fake::Running;

async fn channel(running: &Running) -> Channel {
    Endpoint::new(format!("http://{}", running.grpc)).unwrap().connect().await.unwrap()
}

async fn ask(channel: Channel, key: Option<&'static str>, message: MessageRequest) -> Result<MessageResponse, Status> {
    let query = ServerReflectionRequest { host: String::new(), message_request: Some(message) };
    let mut request = Request::new(futures::stream::iter([query]));
    if let Some(key) = key {
        request.metadata_mut().insert("x-api-key", key.parse().unwrap());
    }
    let mut answers = ServerReflectionClient::new(channel).server_reflection_info(request).await?.into_inner();
    answers.next().await.expect("no answer came").map(|answer| answer.message_response.unwrap())
}

#[tokio::test]
async fn what_is_public_is_listed_and_described() {
    let running = Running::start().await;
    let channel = channel(&running).await;
    let listed = ask(channel.clone(), None, MessageRequest::ListServices(String::new())).await.unwrap();
    let MessageResponse::ListServicesResponse(listed) = listed else { panic!("{listed:?}") };
    let mut names: Vec<_> = listed.service.into_iter().map(|ServiceResponse { name }| name).collect();
    names.sort();
    assert_eq!(
        names,
        ["grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "inference.GRPCInferenceService"],
        "nothing of what processes of a cluster say to each other"
    );

    let symbol = MessageRequest::FileContainingSymbol("inference.GRPCInferenceService.ModelInfer".into());
    let described = ask(channel.clone(), None, symbol).await.unwrap();
    let MessageResponse::FileDescriptorResponse(files) = described else { panic!("{described:?}") };
    let file = prost_types::FileDescriptorProto::decode(files.file_descriptor_proto[0].as_slice()).unwrap();
    assert_eq!((file.package(), file.dependency.len()), ("inference", 0), "it is whole");
    assert!(file.source_code_info.is_none());
    let methods: Vec<_> = file.service[0].method.iter().map(|method| method.name().to_owned()).collect();
    assert!(methods.iter().any(|name| name == "ModelStreamInfer"), "{methods:?}");
    let request = file.message_type.iter().find(|message| message.name() == "ModelInferRequest").unwrap();
    let raw = request.field.iter().find(|field| field.name() == "raw_input_contents").unwrap();
    assert_eq!(raw.number(), 7);

    let unknown = MessageRequest::FileContainingSymbol("symphony.v1.Control".into());
    assert_eq!(ask(channel, None, unknown).await.unwrap_err().code(), Code::NotFound);
}

#[tokio::test]
async fn the_older_version_is_there_for_clients_that_know_no_other() {
    use v1alpha::server_reflection_client::ServerReflectionClient;
    use v1alpha::server_reflection_request::MessageRequest;
    use v1alpha::server_reflection_response::MessageResponse;

    let running = Running::start().await;
    let query = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut client = ServerReflectionClient::new(channel(&running).await);
    let answers = client.server_reflection_info(futures::stream::iter([query])).await.unwrap();
    let answer = answers.into_inner().message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(listed)) = answer.message_response else { panic!("{answer:?}") };
    assert!(listed.service.iter().any(|service| service.name == "inference.GRPCInferenceService"), "{listed:?}");
}

#[tokio::test]
async fn it_takes_a_key_as_metadata_does() {
    let running = Running::start().await;
    let channel = channel(&running).await;
    let list = || MessageRequest::ListServices(String::new());
    for key in ["none", "nonsense"] {
        let refused = ask(channel.clone(), Some(key), list()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated, "{key}: {refused}");
    }
    // Any right is enough.
    for key in ["infer", "status"] {
        ask(channel.clone(), Some(key), list()).await.unwrap();
    }
}
