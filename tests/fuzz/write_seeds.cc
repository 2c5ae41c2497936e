// SPDX-License-Identifier: Apache-2.0
// Writes the hand-made inputs of the fuzz targets: write_seeds FOLDER, into a folder of it for each target.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "transport/wire.h"
#include "write_seeds.h"

namespace forgive {

bool WriteFile(const std::filesystem::path& path, const Bytes& bytes) {
  std::ofstream stream(path, std::ios::binary);
  stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  stream.close();
  if (stream) return true;
  std::fprintf(stderr, "cannot write %s\n", path.c_str());
  return false;
}

namespace {

constexpr SipKey kKey{1, 2};

Bytes Data(uint32_t message_length, uint32_t offset, uint16_t payload, size_t arrived) {
  DataHeader header;
  header.payload_length = payload;
  header.connection_id = 0x1234;
  header.stream_offset = 1024 + uint64_t{offset};
  header.message_number = 2;
  header.offset_in_message = offset;
  header.message_length = message_length;
  header.packet_number = 77;
  Bytes packet(kDataHeaderBytes + arrived, 0x5a);
  WriteDataHeader(header, &kKey, packet.data());
  return packet;
}

Bytes AReport(uint32_t requests, uint32_t sacks) {
  Report report;
  report.connection_id = 0x1234;
  report.report_number = 9;
  report.exempt_eligible = true;
  report.rcv_nxt = 4096;
  report.posted_messages = 8;
  report.request_count = requests;
  report.sack_count = sacks;
  for (uint32_t i = 0; i < requests; ++i) report.requests[i] = Range{4096 + 32 * i, 4112 + 32 * i};
  for (uint32_t i = 0; i < sacks; ++i) report.sacks[i] = Range{8192 + 32 * i, 8208 + 32 * i};
  Bytes packet(kMaxReportBytes);
  packet.resize(WriteReport(report, &kKey, packet.data()));
  return packet;
}

bool WriteWireSeeds(const std::filesystem::path& folder) {
  Connect connect;
  connect.max_payload = 160;
  Bytes connect_packet(kDataHeaderBytes + connect.max_payload);
  WriteConnect(connect, kKey, connect_packet.data());
  connect.rail_count = 3;
  for (uint8_t rail = 0; rail < 3; ++rail) connect.rails[rail].bytes[0] = static_cast<uint8_t>(rail + 1);
  Bytes rails_packet(kDataHeaderBytes + connect.max_payload);
  WriteConnect(connect, kKey, rails_packet.data());
  Bytes reply_packet(kConnectReplyBytes);
  WriteConnectReply(ConnectReply{}, kKey, reply_packet.data());
  Bytes probe_packet(kControlBytes);
  WriteControl(Control{PacketType::kProbe, 0, 1, 2}, &kKey, probe_packet.data());
  Bytes other_version = reply_packet;
  other_version[0] = 2;
  Bytes cut_header = Data(1 << 20, 4096, 4096, 0);
  cut_header.resize(40);
  return WriteFile(folder / "data_whole", Data(4096, 0, 64, 64)) &&
         WriteFile(folder / "connect_over_rails", rails_packet) &&
         WriteFile(folder / "data_trimmed", Data(1 << 20, 4096, 4096, 0)) &&
         WriteFile(folder / "data_last_segment", Data(133, 128, 5, 5)) &&
         WriteFile(folder / "data_zero_length_message", Data(0, 0, 0, 0)) &&
         WriteFile(folder / "data_cut_header", cut_header) && WriteFile(folder / "report_plain", AReport(0, 0)) &&
         WriteFile(folder / "report_full", AReport(kMaxRequestRanges, kMaxSackRanges)) &&
         WriteFile(folder / "connect", connect_packet) && WriteFile(folder / "connect_reply", reply_packet) &&
         WriteFile(folder / "probe", probe_packet) && WriteFile(folder / "other_version", other_version);
}

// Scripts of endpoint_fuzz.cc: a byte of settings, then operations with their arguments.
bool WriteEndpointSeeds(const std::filesystem::path& folder) {
  const Bytes transfer = {0x03, 1, 4, 0, 0, 4, 0, 2, 2, 2};
  // A step of p = 0.6, an eligible and forgivable receive; the first segment arrives, the second is cut, and comes
  // once more after it was forgiven.
  const Bytes trim_forgiven = {0x03, 9, 200, 1, 4, 7, 0, 4, 0, 3, 0, 3, 0, 6, 0, 0, 4, 0, 3, 0, 2, 2, 10, 2};
  const Bytes late_payload = {0x03, 9, 200, 1, 4, 7, 0, 4, 0, 3, 0, 3, 0, 8, 27, 2, 6, 0, 0, 3, 0, 2, 2};
  const Bytes unforgivable = {0x03, 9, 200, 1, 4, 3, 0, 4, 0, 3, 0, 3, 0, 6, 0, 0, 3, 0, 10, 6, 0, 9, 3, 0, 2, 2};
  const Bytes drop_and_time = {0x03, 1, 8, 0, 0, 8, 0, 2, 5, 0, 5, 1, 8, 24, 2, 8, 26, 2, 2};
  const Bytes mutated_with_tags = {0x03, 1, 2, 0, 0, 2, 0, 3, 0, 7, 0, 20, 3, 3, 0, 7, 0, 60, 1, 3, 0, 2};
  const Bytes mutated_without_tags = {0x00, 1, 2, 0, 0, 2, 0, 3, 0, 7, 0, 20, 3, 3, 0, 7, 0, 34, 1, 3, 0, 2};
  const Bytes marked = {0x03, 1, 8, 0, 0, 8, 0, 3, 0, 13, 0, 13, 2, 3, 0, 3, 0, 2, 2};
  const Bytes close_in_the_middle = {0x03, 1, 9, 0, 0, 9, 0, 3, 0, 3, 0, 11, 1, 2, 2, 11, 0, 2};
  const Bytes too_long = {0x03, 1, 1, 0, 0, 2, 0, 2, 2, 8, 27, 2};
  const Bytes injected = {0x03, 12, 1, 14, 1, 1, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 12, 0, 3, 1, 2, 3, 2};
  return WriteFile(folder / "transfer", transfer) && WriteFile(folder / "trim_forgiven", trim_forgiven) &&
         WriteFile(folder / "late_payload", late_payload) && WriteFile(folder / "unforgivable", unforgivable) &&
         WriteFile(folder / "drop_and_time", drop_and_time) && WriteFile(folder / "marked", marked) &&
         WriteFile(folder / "mutated_with_tags", mutated_with_tags) &&
         WriteFile(folder / "mutated_without_tags", mutated_without_tags) &&
         WriteFile(folder / "close_in_the_middle", close_in_the_middle) && WriteFile(folder / "too_long", too_long) &&
         WriteFile(folder / "injected", injected);
}

// Scripts of receiver_fuzz.cc: a byte of settings, then operations with their arguments.
bool WriteReceiverSeeds(const std::filesystem::path& folder) {
  // A step of p = 0.6 and 6,400 expected bytes, a message of 200, its first segment; the second is cut; all comes late.
  const Bytes trim_forgiven = {1, 8, 150, 100, 0, 16, 200, 2, 0, 0, 3, 4, 0, 4, 3, 6, 2, 0, 4, 3, 6};
  const Bytes reliable = {1, 0, 0, 100, 4, 0, 0, 3, 6, 2, 0, 0, 3, 2, 0, 4, 3, 6};
  const Bytes unforgivable = {1, 8, 150, 100, 0, 144, 200, 2, 0, 0, 3, 4, 0, 4, 3, 6, 9, 0, 4, 0, 8, 3, 6};
  const Bytes out_of_order = {1, 0, 2, 255, 2, 0, 20, 3, 2, 0, 10, 3, 4, 0, 5, 2, 6, 7, 23, 2, 0, 0, 3, 6};
  const Bytes two_steps = {5, 8, 250, 200, 0, 17, 100, 8, 100, 50, 0, 16, 60, 2, 1, 0, 3, 4, 1, 4, 3, 9, 1, 4, 0, 0, 3};
  const Bytes empty_messages = {1, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 2, 0, 0, 0, 6};
  const Bytes numbers = {1, 10, 0x80, 10, 5, 10, 0x82, 10, 64, 10, 0x86, 10, 1, 10, 0x87, 10, 63};
  const Bytes twisted = {0, 0, 2, 200, 2, 0x80, 0, 3, 0, 3, 4, 0x80, 4, 3, 3, 1, 0, 2, 0x81, 0, 0, 5, 1, 2, 3, 4, 5, 6};
  const Bytes closed = {3, 8, 150, 100, 0, 16, 200, 4, 0, 0, 3, 11, 255, 2, 0, 0, 3, 6, 11, 0, 6};
  return WriteFile(folder / "trim_forgiven", trim_forgiven) && WriteFile(folder / "reliable", reliable) &&
         WriteFile(folder / "unforgivable", unforgivable) && WriteFile(folder / "out_of_order", out_of_order) &&
         WriteFile(folder / "two_steps", two_steps) && WriteFile(folder / "empty_messages", empty_messages) &&
         WriteFile(folder / "numbers", numbers) && WriteFile(folder / "twisted", twisted) &&
         WriteFile(folder / "closed", closed);
}

// Scripts of sender_fuzz.cc: a byte of settings, one of the world, then operations with their arguments.
bool WriteSenderSeeds(const std::filesystem::path& folder) {
  const Bytes transfer = {0, 0, 0, 3, 200, 1, 0, 7, 8, 0, 2, 15, 3, 0, 0, 3, 0, 0, 7, 8, 0};
  const Bytes trims = {33, 0, 0, 3, 200, 1, 7, 7, 8, 0, 2, 15, 3, 0, 0, 5, 1, 5, 2, 7, 8, 0, 2, 15, 9, 21, 7, 8, 0};
  const Bytes lost = {1, 0, 0, 3, 200, 1, 0, 7, 8, 0, 2, 15, 6, 0, 6, 1, 9, 22, 9, 24, 7, 8, 0};
  const Bytes go_back_n = {96, 4, 0, 3, 200, 1, 0, 7, 8, 0, 2, 15, 6, 1, 3, 1, 0, 3, 1, 0, 7, 8, 0, 2, 15};
  const Bytes sprayed = {35, 24, 0, 3, 200, 0, 1, 90, 1, 0, 1, 0, 7, 8, 0, 2, 15, 3, 9, 1, 3, 4, 0, 7, 8, 0, 8, 64};
  const Bytes forged = {2, 32, 0, 3, 200, 10, 0, 0x78, 0, 8, 4, 0, 0, 0, 5, 0, 1, 0, 0, 0, 9, 0, 0, 2, 2, 9, 25};
  const Bytes closed = {1, 0, 0, 3, 200, 1, 0, 7, 8, 0, 2, 15, 3, 0, 0, 11, 255};
  const Bytes probes = {64, 0, 0, 0, 50, 9, 25, 9, 25, 11, 0, 1, 0, 7, 8, 0};
  const Bytes sprayed_timeout = {1, 200, 1, 0, 63, 1, 0, 6, 0, 2, 15, 8, 6, 9, 22, 9, 24, 7, 41, 8, 0};
  return WriteFile(folder / "transfer", transfer) && WriteFile(folder / "trims", trims) &&
         WriteFile(folder / "sprayed_timeout", sprayed_timeout) && WriteFile(folder / "lost", lost) && WriteFile(folder / "go_back_n", go_back_n) &&
         WriteFile(folder / "sprayed", sprayed) && WriteFile(folder / "forged", forged) &&
         WriteFile(folder / "closed", closed) && WriteFile(folder / "probes", probes);
}

// Scripts of handshake_fuzz.cc: a byte of settings, then operations with their arguments.
bool WriteHandshakeSeeds(const std::filesystem::path& folder) {
  const Bytes connected = {15, 0, 1, 2, 0, 128, 4, 4};
  const Bytes guessed = {15, 0, 1, 2, 0, 220, 4, 7, 19, 4};
  const Bytes replayed = {5, 0, 1, 2, 0, 128, 4, 6, 0, 0x80, 6, 1, 0, 8, 0, 8, 1, 7, 19, 7, 19, 6, 0, 0x80};
  const Bytes changed = {15, 0, 1, 2, 0, 128, 5, 0, 0, 6, 0, 0x81, 20, 4, 6, 0, 0x84, 2, 6, 0, 0x82, 40};
  const Bytes refused = {0, 0, 1, 2, 0, 1, 2, 0, 9, 2, 0, 17, 2, 0, 25, 2, 0, 33, 4, 4, 7, 16, 4};
  const Bytes closed = {3, 0, 0, 0, 1, 2, 0, 50, 1, 0, 4, 2, 1, 60, 1, 1, 4, 8, 0, 8, 1, 4};
  const Bytes noise = {1, 0, 1, 9, 3, 1, 3, 0, 1, 9, 2, 9, 9, 0};
  const Bytes rails = {63, 0, 1, 2, 0, 128, 4, 4, 7, 19, 4};
  const Bytes other_rails = {31, 0, 1, 2, 0, 128, 4, 4, 7, 19, 4};
  return WriteFile(folder / "rails", rails) && WriteFile(folder / "other_rails", other_rails) &&
         WriteFile(folder / "connected", connected) && WriteFile(folder / "guessed", guessed) &&
         WriteFile(folder / "replayed", replayed) && WriteFile(folder / "changed", changed) &&
         WriteFile(folder / "refused", refused) && WriteFile(folder / "closed", closed) &&
         WriteFile(folder / "noise", noise);
}

}  // namespace
}  // namespace forgive

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: write_seeds FOLDER\n");
    return 1;
  }
  const std::pair<const char*, bool (*)(const std::filesystem::path&)> writers[] = {
      {"wire", forgive::WriteWireSeeds},           {"endpoint", forgive::WriteEndpointSeeds},
      {"receiver", forgive::WriteReceiverSeeds},   {"sender", forgive::WriteSenderSeeds},
      {"handshake", forgive::WriteHandshakeSeeds}, {"options", forgive::WriteOptionsSeeds},
      {"settings", forgive::WriteSettingsSeeds},   {"norms", forgive::WriteNormsSeeds},
      {"plan", forgive::WritePlanSeeds},
  };
  for (const auto& [target, write] : writers) {
    const std::filesystem::path folder = std::filesystem::path(argv[1]) / target;
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) {
      std::fprintf(stderr, "cannot make %s: %s\n", folder.c_str(), error.message().c_str());
      return 1;
    }
    if (!write(folder)) return 1;
  }
  return 0;
}
