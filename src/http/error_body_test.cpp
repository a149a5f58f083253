#include "http/error_body.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace omni::http {
namespace {

TEST(ErrorBody, HasEveryFieldOfTheErrorObject) {
  const std::string body = error_body({ErrorCode::out_of_memory, "no \"room\""}, "r-1");
  EXPECT_EQ(
      body,
      R"({"error":{"message":"no \"room\"","type":"server_error","code":"out_of_memory","param":null,)"
      R"("origin":"omni","request_id":"r-1"}})");
}

TEST(ErrorBody, LeavesOutAnEmptyRequestId) {
  EXPECT_EQ(error_body({ErrorCode::not_found, "x"}).find("request_id"), std::string::npos);
}

TEST(ErrorBody, EveryCodeComesBackAsItself) {
  for (const ErrorInfo& row : error_table()) {
    const Error error = parse_error_body(row.http_status, error_body({row.code, "why"}));
    EXPECT_EQ(error.code, row.code) << row.name;
    EXPECT_EQ(error.message, "why");
  }
}

TEST(ErrorBody, ForeignBodiesGiveACodeByStatusAndTheirMessage) {
  const Error engine =
      parse_error_body(400, R"({"error":{"code":400,"message":"too long","type":"x"}})");
  EXPECT_EQ(engine.code, ErrorCode::invalid_request);
  EXPECT_EQ(engine.message, "too long");
  EXPECT_EQ(parse_error_body(502, R"({"error":"boom"})").message, "boom");
  const Error page = parse_error_body(503, "<html>");
  EXPECT_EQ(page.code, ErrorCode::overloaded);
  EXPECT_EQ(page.message, "the answer had status 503");
}

}  // namespace
}  // namespace omni::http
