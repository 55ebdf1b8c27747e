//===- harness.cpp - LLVM's device classes behind C functions -------------===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Lets a test call DeviceTy, HostDataToTargetTy and their list directly, as LLVM's own sources do, with a plugin that
// is a table of functions. Compiles unchanged against LLVM's device.h and against ours; tests/differential links it
// once with each and compares the two. Every function works on the process-wide PluginManager.
//
//===----------------------------------------------------------------------===//

#include "device.h"

#include <cstring>
#include <unistd.h>

// The functions of RTLInfoTy that DeviceTy calls. tests/differential/plugin.rs has the same order.
#define PLUGIN_FUNCTIONS(F)                                                                                            \
  F(init_requires)                                                                                                     \
  F(init_device)                                                                                                       \
  F(load_binary)                                                                                                       \
  F(data_alloc)                                                                                                        \
  F(data_delete)                                                                                                       \
  F(data_submit)                                                                                                       \
  F(data_submit_async)                                                                                                 \
  F(data_retrieve)                                                                                                     \
  F(data_retrieve_async)                                                                                               \
  F(is_data_exchangable)                                                                                               \
  F(data_exchange)                                                                                                     \
  F(data_exchange_async)                                                                                               \
  F(run_region)                                                                                                        \
  F(run_region_async)                                                                                                  \
  F(run_team_region)                                                                                                   \
  F(run_team_region_async)                                                                                             \
  F(synchronize)                                                                                                       \
  F(print_device_info)                                                                                                 \
  F(create_event)                                                                                                      \
  F(record_event)                                                                                                      \
  F(wait_event)                                                                                                        \
  F(sync_event)                                                                                                        \
  F(destroy_event)

namespace {

struct PluginFunctions {
#define MEMBER(NAME) decltype(RTLInfoTy::NAME) NAME;
  PLUGIN_FUNCTIONS(MEMBER)
#undef MEMBER
};

struct BeginArguments {
  void *HstPtrBegin;
  void *HstPtrBase;
  int64_t Size;
  map_var_info_t HstPtrName;
  bool HasFlagTo, HasFlagAlways, IsImplicit, UpdateRefCount, HasCloseModifier, HasPresentModifier, HasHoldModifier;
};

struct EndArguments {
  void *HstPtrBegin;
  int64_t Size;
  bool UpdateRefCount, UseHoldRefCount, MustContain, ForceDelete;
};

struct Answer {
  void *Target;
  /// First host address of the entry, 0 if there is none to look at.
  uintptr_t Entry;
  bool HasEntry, IsNew, IsHost, IsLast, IsHostToo;
};

/// One row of the table.
struct Row {
  uintptr_t HstPtrBegin, HstPtrEnd, HstPtrName, TgtPtrBegin;
  char DynRefCount[24], HoldRefCount[24];
  bool MayContainAttachedPointers;
};

const size_t MaxRows = 128;

RTLInfoTy *Plugin = nullptr;

/// What the latest getTargetPointer answered.
TargetPointerResultTy Latest;

DeviceTy &device(int32_t Number) { return *PM->Devices[Number]; }

Answer answer(DeviceTy &Device, const TargetPointerResultTy &Result) {
  const auto &Entry = Result.MapTableEntry;
  Answer A = {};
  A.Target = Result.TargetPointer;
  A.HasEntry = !(Entry == HostDataToTargetListTy::iterator{});
  A.Entry = A.HasEntry && Entry != Device.HostDataToTargetMap.end() ? Entry->HstPtrBegin : 0;
  A.IsNew = Result.Flags.IsNewEntry;
  A.IsHost = Result.Flags.IsHostPointer;
  return A;
}

} // namespace

extern "C" {

/// Lets standard error go to Fd, which is closed, and returns a descriptor of where it went before.
int32_t harness_redirect_errors(int32_t Fd) {
  int32_t Before = dup(STDERR_FILENO);
  dup2(Fd, STDERR_FILENO);
  close(Fd);
  return Before;
}

/// Starts anew, with Count devices of a plugin.
void harness_start(const PluginFunctions *Functions, int32_t Count, bool UseEvents) {
  delete PM;
  PM = new PluginManager(UseEvents);
  Plugin = new RTLInfoTy();
#define TAKE(NAME) Plugin->NAME = Functions->NAME;
  PLUGIN_FUNCTIONS(TAKE)
#undef TAKE
  for (int32_t I = 0; I < Count; ++I) {
    PM->Devices.push_back(std::make_unique<DeviceTy>(Plugin));
    device(I).DeviceID = device(I).RTLDeviceID = I;
  }
}

/// Ends what harness_start began, as the end of a program does.
void harness_stop() {
  Latest = TargetPointerResultTy();
  delete PM;
  PM = nullptr;
  delete Plugin;
}

AsyncInfoTy *harness_new_call(int32_t Device) { return new AsyncInfoTy(device(Device)); }
void harness_delete_call(AsyncInfoTy *Call) { delete Call; }
int32_t harness_synchronize(AsyncInfoTy *Call) { return Call->synchronize(); }

void harness_set_requires(int64_t Flags) { PM->RTLs.RequiresFlags = Flags; }

int32_t harness_init_once(int32_t Device) { return device(Device).initOnce(); }
bool harness_is_ready(int32_t Device) { return device_is_ready(Device); }
bool harness_print_device_info(int32_t Device) { return device(Device).printDeviceInfo(Device); }
void *harness_load_binary(int32_t Device, void *Image) { return device(Device).load_binary(Image); }

/// The result stays with the harness for harness_attach, until harness_forget.
Answer harness_get_target_pointer(int32_t Device, const BeginArguments *A, AsyncInfoTy *Call) {
  DeviceTy &D = device(Device);
  const TargetPointerResultTy Result = D.getTargetPointer(
      A->HstPtrBegin, A->HstPtrBase, A->Size, A->HstPtrName, A->HasFlagTo, A->HasFlagAlways, A->IsImplicit,
      A->UpdateRefCount, A->HasCloseModifier, A->HasPresentModifier, A->HasHoldModifier, *Call);
  // A copy, which outlives the call.
  Latest = Result;
  return answer(D, Latest);
}

/// Copies a pointer into the latest entry, as LLVM does for an attached one.
int32_t harness_attach(int32_t Device, void *TgtPtr, void *Pointer, AsyncInfoTy *Call) {
  const HostDataToTargetTy &Entry = *Latest.MapTableEntry;
  Entry.setMayContainAttachedPointers();
  HostDataToTargetTy::LockGuard LG(Entry);
  void *&Place = Call->getVoidPtrLocation();
  Place = Pointer;
  int32_t Ret = device(Device).submitData(TgtPtr, &Place, sizeof(Place), *Call);
  return Ret == OFFLOAD_SUCCESS ? Entry.addEventIfNecessary(device(Device), *Call) : Ret;
}

void harness_forget() { Latest = TargetPointerResultTy(); }

Answer harness_get_tgt_ptr_begin(int32_t Device, const EndArguments *A) {
  DeviceTy &D = device(Device);
  bool IsLast = true, IsHostPtr = true;
  TargetPointerResultTy Result = D.getTgtPtrBegin(A->HstPtrBegin, A->Size, IsLast, A->UpdateRefCount,
                                                  A->UseHoldRefCount, IsHostPtr, A->MustContain, A->ForceDelete);
  Answer Out = answer(D, Result);
  Out.IsLast = IsLast;
  Out.IsHostToo = IsHostPtr;
  return Out;
}

void *harness_address(int32_t Device, void *HstPtrBegin, int64_t Size) {
  DeviceTy &D = device(Device);
  std::lock_guard<decltype(D.DataMapMtx)> Lock(D.DataMapMtx);
  return D.getTgtPtrBegin(HstPtrBegin, Size);
}

/// Maps a global, as LLVM does when it loads an image, unless something is mapped there, which it returns.
void *harness_map_global(int32_t Device, uintptr_t HstPtrBegin, int64_t Size, uintptr_t TgtPtrBegin, bool Hold,
                         bool IsRefCountINF) {
  DeviceTy &D = device(Device);
  std::lock_guard<decltype(D.DataMapMtx)> Lock(D.DataMapMtx);
  void *There = D.getTgtPtrBegin((void *)HstPtrBegin, Size);
  if (!There)
    D.HostDataToTargetMap.emplace(HstPtrBegin, HstPtrBegin, HstPtrBegin + Size, TgtPtrBegin, Hold, nullptr,
                                  IsRefCountINF);
  return There;
}

int32_t harness_dealloc(int32_t Device, void *HstPtrBegin, int64_t Size, bool Hold) {
  return device(Device).deallocTgtPtr(HstPtrBegin, Size, Hold);
}
int32_t harness_associate(int32_t Device, void *HstPtrBegin, void *TgtPtrBegin, int64_t Size) {
  return device(Device).associatePtr(HstPtrBegin, TgtPtrBegin, Size);
}
int32_t harness_disassociate(int32_t Device, void *HstPtrBegin) { return device(Device).disassociatePtr(HstPtrBegin); }

void *harness_alloc(int32_t Device, int64_t Size, void *HstPtr, int32_t Kind) {
  return device(Device).allocData(Size, HstPtr, Kind);
}
int32_t harness_delete(int32_t Device, void *TgtPtr) { return device(Device).deleteData(TgtPtr); }
int32_t harness_submit(int32_t Device, void *TgtPtr, void *HstPtr, int64_t Size, AsyncInfoTy *Call) {
  return device(Device).submitData(TgtPtr, HstPtr, Size, *Call);
}
int32_t harness_retrieve(int32_t Device, void *HstPtr, void *TgtPtr, int64_t Size, AsyncInfoTy *Call) {
  return device(Device).retrieveData(HstPtr, TgtPtr, Size, *Call);
}
bool harness_is_exchangable(int32_t Device, int32_t To) { return device(Device).isDataExchangable(device(To)); }
int32_t harness_exchange(int32_t Device, void *SrcPtr, int32_t To, void *DstPtr, int64_t Size, AsyncInfoTy *Call) {
  return device(Device).dataExchange(SrcPtr, device(To), DstPtr, Size, *Call);
}
int32_t harness_run(int32_t Device, void *Entry, bool Teams, AsyncInfoTy *Call) {
  DeviceTy &D = device(Device);
  void *Arguments[] = {Entry};
  ptrdiff_t Offsets[] = {8};
  return Teams ? D.runTeamRegion(Entry, Arguments, Offsets, 1, 2, 3, 4, *Call)
               : D.runRegion(Entry, Arguments, Offsets, 1, *Call);
}

int32_t harness_create_event(int32_t Device, void **Event) { return device(Device).createEvent(Event); }
int32_t harness_record_event(int32_t Device, void *Event, AsyncInfoTy *Call) {
  return device(Device).recordEvent(Event, *Call);
}
int32_t harness_wait_event(int32_t Device, void *Event, AsyncInfoTy *Call) {
  return device(Device).waitEvent(Event, *Call);
}
int32_t harness_sync_event(int32_t Device, void *Event) { return device(Device).syncEvent(Event); }
int32_t harness_destroy_event(int32_t Device, void *Event) { return device(Device).destroyEvent(Event); }

bool harness_is_empty(int32_t Device) { return device(Device).HostDataToTargetMap.empty(); }

/// Writes the first rows of the table, and returns how many there are.
size_t harness_table(int32_t Device, Row (*Rows)[MaxRows]) {
  DeviceTy &D = device(Device);
  std::lock_guard<decltype(D.DataMapMtx)> Lock(D.DataMapMtx);
  size_t Count = 0;
  for (const auto &Entry : D.HostDataToTargetMap) {
    if (Count < MaxRows) {
      Row &R = (*Rows)[Count] = Row();
      R.HstPtrBegin = Entry.HstPtrBegin;
      R.HstPtrEnd = Entry.HstPtrEnd;
      R.HstPtrName = (uintptr_t)Entry.HstPtrName;
      R.TgtPtrBegin = Entry.TgtPtrBegin;
      strncpy(R.DynRefCount, Entry.dynRefCountToStr().c_str(), sizeof(R.DynRefCount) - 1);
      strncpy(R.HoldRefCount, Entry.holdRefCountToStr().c_str(), sizeof(R.HoldRefCount) - 1);
      R.MayContainAttachedPointers = Entry.getMayContainAttachedPointers();
    }
    ++Count;
  }
  return Count;
}

} // extern "C"
