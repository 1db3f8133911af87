#pragma once
#include "tandem/comm/flight_recorder.h"
#include "tandem/comm/wire_meter.h"

namespace tandem::comm {

/// What watches one rank's communication, through all of its groups.
struct Instruments {
  Instruments(int rank, int size) : recorder(rank, size) {}

  WireMeter meter;
  FlightRecorder recorder;
  bool check = false;  // compare every collective call with the other ranks' before it is made; see call_check.h
};

}  // namespace tandem::comm
