// What a command engine is sent in a client's place: the body plans `pass` and `edit` of
// docs/contracts/body-plans.md. Pure.
#pragma once

#include "gateway/body.h"
#include "gateway/json_body.h"
#include "gateway/relay_http.h"
#include "gateway/request.h"

namespace omni::gateway {

// The client's JSON body to the same path: unchanged, but for the engine's own name of the model
// and for the usage that the token counters need of a stream.
EngineRequest json_request(const Request& request, std::string body, const JsonFacts& facts);
// A form to the same path, with the engine's own name of the model.
EngineRequest form_request(const Request& request, Form form);
// /ai/run for a task that is about a file, asked without one.
Error needs_file(const ModelRoute& model);
// /ai/run, to the OpenAI path of the model's task.
Result<EngineRequest> run_json_request(const Request& request, std::string body,
                                       const JsonFacts& facts);
Result<EngineRequest> run_form_request(const Request& request, Form form);
// The raw path: everything but the body.
EngineRequest raw_request(const Request& request);

}  // namespace omni::gateway
