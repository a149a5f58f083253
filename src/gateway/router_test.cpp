#include "gateway/router.h"

#include <gtest/gtest.h>

namespace omni::gateway {
namespace {

Route route(std::string_view target) {
  auto found = find_route(target);
  EXPECT_TRUE(found.ok()) << target;
  return found.ok() ? *found : Route{};
}

TEST(Router, FindsFixedPathsWhateverTheQuery) {
  EXPECT_EQ(route("/v1/chat/completions?x=1").api, Api::chat);
  EXPECT_EQ(route("/v1/models").api, Api::models);
  EXPECT_EQ(route("/").api, Api::root);
}

TEST(Router, TakesTheModelOutOfThePath) {
  EXPECT_EQ(route("/v1/models/qwen%2Dtiny").model, "qwen-tiny");
  EXPECT_EQ(route("/ai/run/minilm").model, "minilm");
  EXPECT_EQ(route("/ai/run/org/name").model, "org/name");
}

TEST(Router, LeavesTheEngineItsOwnPathAndQuery) {
  const Route with_path = route("/upstream/llama/tokenize/a%20b?x=%31");
  EXPECT_EQ(with_path.api, Api::upstream);
  EXPECT_EQ(with_path.model, "llama");
  EXPECT_EQ(with_path.rest, "/tokenize/a%20b?x=%31");
  EXPECT_EQ(route("/upstream/llama").rest, "/");
  EXPECT_EQ(route("/upstream/llama?x=1").rest, "/?x=1");
}

TEST(Router, SuggestsTheNearestPath) {
  auto found = find_route("/v1/chat/completion");
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::not_found);
  EXPECT_NE(found.error().message.find("did you mean /v1/chat/completions?"), std::string::npos);
  for (std::string_view target : {"/v1/models/", "/ai/run/", "/upstream/", "/nothing", "*"}) {
    EXPECT_FALSE(find_route(target).ok()) << target;
  }
  EXPECT_EQ(find_route("/ai/run/%zz").error().code, ErrorCode::invalid_request);
}

TEST(Router, KnowsMethods) {
  EXPECT_TRUE(method_allowed(Api::models, "HEAD"));
  EXPECT_FALSE(method_allowed(Api::models, "POST"));
  EXPECT_FALSE(method_allowed(Api::models, "GE"));
  EXPECT_TRUE(method_allowed(Api::chat, "POST"));
  EXPECT_TRUE(method_allowed(Api::upstream, "PROPFIND"));
}

TEST(Router, EachTaskIsServedWhereItSays) {
  for (const TaskName& row : kTaskNames) {
    std::string target(endpoint_of(row.task).substr(5));
    if (target == "/ai/run/{model}") target = "/ai/run/x";
    EXPECT_TRUE(serves(route(target).api, row.task)) << target;
    EXPECT_TRUE(method_allowed(route(target).api, "POST")) << target;
  }
  EXPECT_TRUE(serves(Api::completions, Task::chat));
  EXPECT_TRUE(serves(Api::rerank, Task::embeddings));
  EXPECT_FALSE(serves(Api::chat, Task::completion));
  EXPECT_FALSE(serves(Api::embeddings, Task::rerank));
}

}  // namespace
}  // namespace omni::gateway
