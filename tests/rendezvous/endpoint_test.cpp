#include "tandem/rendezvous/endpoint.h"

#include <gtest/gtest.h>

namespace tandem::rendezvous {
namespace {

std::string split(const std::string& text) {
  const auto parts = split_endpoint(text);
  return parts ? parts->first + " " + parts->second : "none";
}

TEST(Endpoint, HostAndPort) {
  EXPECT_EQ(split("host0:29500"), "host0 29500");
  EXPECT_EQ(split("10.0.0.1:29500"), "10.0.0.1 29500");
  EXPECT_EQ(split("[::1]:29500"), "::1 29500");
  EXPECT_EQ(split("::1:29500"), "::1 29500");
  EXPECT_EQ(split("2001:db8::7:29500"), "2001:db8::7 29500");
  EXPECT_EQ(split("[fe80::1%eth0]:29500"), "fe80::1%eth0 29500");
  EXPECT_EQ(split("fe80::1%eth0:29500"), "fe80::1%eth0 29500");
}

TEST(Endpoint, NoHostAndPort) {
  for (const auto* text :
       {"host0", ":29500", "", "::1", "[::1]", "[::1", "[::1:29500", "[::1]29500", "[]:29500", "[host0]:29500",
        "[10.0.0.1]:29500", "::1]:29500", "a:b:29500", "2001:db8:0:0:0:0:0:1", "[fe80::1%]:29500", "[[::1]]:29500"}) {
    EXPECT_EQ(split(text), "none") << text;
  }
}

TEST(Endpoint, AnIpv6AddressIsWrittenInBrackets) {
  EXPECT_EQ(text_of({"10.0.0.1", 29500}), "10.0.0.1:29500");
  EXPECT_EQ(text_of({"::1", 29500}), "[::1]:29500");
}

}  // namespace
}  // namespace tandem::rendezvous
