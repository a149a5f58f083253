#include "gateway/errors.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "http/error_body.h"

namespace omni::gateway {
namespace {

namespace json = boost::json;

json::object error_in(const std::string& body) { return json::parse(body).at("error").as_object(); }

TEST(OpenAiError, SaysWhatWhoAndWhich) {
  const Error error{ErrorCode::model_not_found, "there is no model \"x\""};
  const json::object shown = error_in(http::error_body(error, "req_1", "model"));
  EXPECT_EQ(shown.at("message"), "there is no model \"x\"");
  EXPECT_EQ(shown.at("type"), "invalid_request_error");
  EXPECT_EQ(shown.at("code"), "model_not_found");
  EXPECT_EQ(shown.at("param"), "model");
  EXPECT_EQ(shown.at("origin"), "client");
  EXPECT_EQ(shown.at("request_id"), "req_1");
  EXPECT_TRUE(error_in(http::error_body(error, "req_1")).at("param").is_null());
}

TEST(OpenAiError, IsUtf8WhateverTheMessageQuotes) {
  const Error error{ErrorCode::internal, "bad \xff\xc3\xa9 \xe2\x82"};
  EXPECT_EQ(error_in(http::error_body(error, "r")).at("message"), "bad ?\xc3\xa9 ??");
}

TEST(EngineError, PassesAnErrorObjectUnchanged) {
  const std::string body = R"({"error":{"message":"too long","type":"exceed_context_size_error"}})";
  EXPECT_EQ(engine_error_body(400, body, "r"), body);
}

TEST(EngineError, QuotesAnythingElse) {
  for (std::string body : {"Not Found", "<html>", "[1]", "{\"detail\":1}"}) {
    const json::object shown = error_in(engine_error_body(404, body, "r"));
    EXPECT_EQ(shown.at("origin"), "engine");
    EXPECT_EQ(shown.at("code"), "invalid_request");
    EXPECT_NE(std::string(shown.at("message").as_string()).find(body), std::string::npos);
  }
  const json::object shown = error_in(engine_error_body(500, "", "r"));
  EXPECT_EQ(shown.at("code"), "handler_failed");
  EXPECT_EQ(shown.at("message"), "the engine answered 500 without a body");
}

}  // namespace
}  // namespace omni::gateway
