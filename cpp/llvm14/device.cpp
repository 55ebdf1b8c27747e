//===- llvm14/device.cpp - The face of the Rust core for LLVM 14 ----------===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stands in for LLVM 14's libomptarget/src/device.cpp: converts LLVM's types and calls Rust. No decision is made here
// but what only C++ can know.
//
//===----------------------------------------------------------------------===//

#include "device.h"
#include "private.h"
#include "rtl.h"

#include "omprs/src/bridge/device.rs.h"
#include "omprs/src/bridge/entry.rs.h"
#include "omprs/src/bridge/list.rs.h"

#include <cstddef>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

// Rust's Entry and the ABI package have the same numbers.
static_assert(std::is_standard_layout<HostDataToTargetTy>::value && offsetof(HostDataToTargetTy, HstPtrBegin) == 0 &&
                  offsetof(HostDataToTargetTy, HstPtrEnd) == 8 && offsetof(HostDataToTargetTy, HstPtrName) == 16 &&
                  offsetof(HostDataToTargetTy, TgtPtrBegin) == 24,
              "HostDataToTargetTy is the head of Rust's Entry");
static_assert(sizeof(__tgt_async_info) == 8 && sizeof(__tgt_target_table) == 16 && sizeof(__tgt_offload_entry) == 32 &&
                  offsetof(__tgt_offload_entry, flags) == 24,
              "omptarget-abi has these layouts");
static_assert(OFFLOAD_SUCCESS == 0 && OFFLOAD_FAIL == -1 && OMP_REQ_UNIFIED_SHARED_MEMORY == 8 &&
                  TARGET_ALLOC_DEFAULT == 3 && OMP_INFOTYPE_MAPPING_EXISTS == 2 && OMP_INFOTYPE_MAPPING_CHANGED == 8 &&
                  OMP_INFOTYPE_DATA_TRANSFER == 32,
              "omptarget-abi has these values");
static_assert(sizeof(std::atomic<uint32_t>) == 4, "Rust reads the information level in place");

static_assert(offsetof(omprs::BeginRequest, HstPtrBase) == 16 && offsetof(omprs::BeginRequest, HasHoldModifier) == 32 &&
                  offsetof(omprs::BeginRequest, IsUnified) == 37 &&
                  offsetof(omprs::EndRequest, UseHoldRefCount) == 16 && offsetof(omprs::EndRequest, IsUnified) == 20,
              "Rust's requests");

using omprs::Answer;
using omprs::Found;

//===----------------------------------------------------------------------===//
// Handles
//===----------------------------------------------------------------------===//

void omprs::retainEntry(const Entry *E) { retain(E); }
void omprs::releaseEntry(const Device *D, const Entry *E) { release(*D, E); }

void omprs::Mutex::lockContended() {
  for (int Tries = 0; Tries < 100; ++Tries) {
    uint32_t Free = 0;
    if (State.load(std::memory_order_relaxed) == 0 && State.compare_exchange_weak(Free, 1, std::memory_order_acquire))
      return;
    __builtin_ia32_pause();
  }
  while (State.exchange(2, std::memory_order_acquire) != 0)
    syscall(SYS_futex, &State, FUTEX_WAIT_PRIVATE, 2, nullptr, nullptr, 0);
}

void omprs::Mutex::wakeOne() { syscall(SYS_futex, &State, FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0); }

void omprs::TableMutex::lock() { lockTable(*D); }
void omprs::TableMutex::unlock() { unlockTable(*D); }

//===----------------------------------------------------------------------===//
// HostDataToTargetTy
//===----------------------------------------------------------------------===//

// There before anything is run, and never destroyed: the runtime is called after static destructors.
const HostDataToTargetTy HostDataToTargetTy::None;

const omprs::Entry *HostDataToTargetTy::core() const {
  return this == &None ? nullptr : reinterpret_cast<const omprs::Entry *>(this);
}

int HostDataToTargetTy::addEventIfNecessary(DeviceTy &Device, AsyncInfoTy &AsyncInfo) const {
  return core() ? omprs::addEventIfNecessary(*core(), *Device.Core, AsyncInfo) : OFFLOAD_SUCCESS;
}

std::string HostDataToTargetTy::dynRefCountToStr() const {
  return core() ? std::string(omprs::dynRefCountToStr(*core())) : "0";
}

std::string HostDataToTargetTy::holdRefCountToStr() const {
  return core() ? std::string(omprs::holdRefCountToStr(*core())) : "0";
}

void HostDataToTargetTy::setMayContainAttachedPointers() const {
  if (core())
    core()->setMayContainAttachedPointers();
}

bool HostDataToTargetTy::getMayContainAttachedPointers() const {
  return core() && core()->getMayContainAttachedPointers();
}

void HostDataToTargetTy::lock() const {
  if (core())
    omprs::lock(*core());
}

void HostDataToTargetTy::unlock() const {
  if (core())
    omprs::unlock(*core());
}

//===----------------------------------------------------------------------===//
// HostDataToTargetListTy
//===----------------------------------------------------------------------===//

using ListIterator = HostDataToTargetListTy::iterator;

ListIterator &ListIterator::operator++() {
  return *this = iterator(omprs::entryAfter(*device(), *entry()), device());
}

ListIterator HostDataToTargetListTy::begin() const { return iterator(omprs::firstEntry(*D), D); }

bool HostDataToTargetListTy::empty() const { return omprs::isEmpty(*D); }

void HostDataToTargetListTy::emplace(uintptr_t HstPtrBase, uintptr_t HstPtrBegin, uintptr_t HstPtrEnd,
                                     uintptr_t TgtPtrBegin, bool UseHoldRefCount, map_var_info_t Name,
                                     bool IsRefCountINF) {
  omprs::emplaceEntry(*D,
                      {HstPtrBase, HstPtrBegin, HstPtrEnd, TgtPtrBegin, UseHoldRefCount, Name, IsRefCountINF});
}

ShadowPtrListTy::iterator ShadowPtrListTy::find(void *HstPtrAddr) {
  const iterator It = Map.find(HstPtrAddr);
  return It != end() && omprs::isAttached(*D, HstPtrAddr, It->second.TgtPtrVal) ? It : end();
}

//===----------------------------------------------------------------------===//
// DeviceTy: making, initialising
//===----------------------------------------------------------------------===//

/// A device of \p RTL's plugin. Rust takes the functions from the library; without one, from \p RTL.
static omprs::Device *newCore(const RTLInfoTy *RTL) {
  if (!RTL || RTL->LibraryHandler)
    return omprs::newDevice(RTL ? RTL->LibraryHandler : nullptr, {}, PM->UseEventsForAtomicTransfers).into_raw();
#define FUNCTION(MEMBER, NAME) {"__tgt_rtl_" NAME, reinterpret_cast<const void *>(RTL->MEMBER)}
  const omprs::PluginFunction Functions[] = {
      FUNCTION(init_requires, "init_requires"),
      FUNCTION(init_device, "init_device"),
      FUNCTION(load_binary, "load_binary"),
      FUNCTION(data_alloc, "data_alloc"),
      FUNCTION(data_delete, "data_delete"),
      FUNCTION(data_submit, "data_submit"),
      FUNCTION(data_submit_async, "data_submit_async"),
      FUNCTION(data_retrieve, "data_retrieve"),
      FUNCTION(data_retrieve_async, "data_retrieve_async"),
      FUNCTION(is_data_exchangable, "is_data_exchangable"),
      FUNCTION(data_exchange, "data_exchange"),
      FUNCTION(data_exchange_async, "data_exchange_async"),
      FUNCTION(run_region, "run_target_region"),
      FUNCTION(run_region_async, "run_target_region_async"),
      FUNCTION(run_team_region, "run_target_team_region"),
      FUNCTION(run_team_region_async, "run_target_team_region_async"),
      FUNCTION(synchronize, "synchronize"),
      FUNCTION(print_device_info, "print_device_info"),
      FUNCTION(create_event, "create_event"),
      FUNCTION(record_event, "record_event"),
      FUNCTION(wait_event, "wait_event"),
      FUNCTION(sync_event, "sync_event"),
      FUNCTION(destroy_event, "destroy_event"),
  };
#undef FUNCTION
  const size_t Count = sizeof(Functions) / sizeof(*Functions);
  return omprs::newDevice(nullptr, {Functions, Count}, PM->UseEventsForAtomicTransfers).into_raw();
}

DeviceTy::DeviceTy(RTLInfoTy *RTL)
    : Core(newCore(RTL)), DeviceID(*omprs::deviceID(*Core)), RTL(RTL), RTLDeviceID(*omprs::rtlDeviceID(*Core)),
      HasPendingGlobals(false), HostDataToTargetMap(Core), ShadowPtrMap(Core), DataMapMtx(Core) {}

DeviceTy::~DeviceTy() {
  if (DeviceID != -1 && (getInfoLevel() & OMP_INFOTYPE_DUMP_TABLE)) {
    ident_t Loc = {0, 0, 0, 0, ";libomptarget;libomptarget;0;0;;"};
    dumpTargetPointerMappings(&Loc, *this);
  }
  rust::Box<omprs::Device>::from_raw(Core);
}

int32_t DeviceTy::initOnce() { return omprs::initOnce(*Core, PM->RTLs.RequiresFlags); }

bool DeviceTy::makeReady(int DeviceNum) { return Core->makeReady(DeviceNum, PM->RTLs.RequiresFlags); }

/// Device \p Number, or null.
static DeviceTy *findDevice(int Number) {
  // A device gets its numbers after it has been added.
  std::lock_guard<decltype(PM->RTLsMtx)> Lock(PM->RTLsMtx);
  return Number >= 0 && (size_t)Number < PM->Devices.size() ? PM->Devices[Number] : nullptr;
}

/// Asks the device, in every call until it is known to be ready.
__attribute__((noinline)) static bool makeReady(int device_num) {
  DeviceTy *Device = findDevice(device_num);
  if (!Device) {
    omprs::deviceIsMissing(device_num);
    return false;
  }
  const bool IsReady = Device->makeReady(device_num);
  // Each call has lines to print in debug output.
  const size_t Index = device_num;
  if (IsReady && Index < PM->IsReady.size() && !getDebugLevel())
    PM->IsReady[Index].store(true, std::memory_order_release);
  return IsReady;
}

bool device_is_ready(int device_num) {
  const size_t Index = device_num;
  if (Index < PM->IsReady.size() && PM->IsReady[Index].load(std::memory_order_acquire))
    return true;
  return makeReady(device_num);
}

PluginManager::PluginManager(bool UseEventsForAtomicTransfers)
    : UseEventsForAtomicTransfers(UseEventsForAtomicTransfers) {
#ifdef OMPTARGET_DEBUG
  const bool BuiltIn = true;
#else
  const bool BuiltIn = false;
#endif
  omprs::startReport(getDebugLevel(), BuiltIn, reinterpret_cast<const uint32_t *>(&getInfoLevelInternal()));
}

//===----------------------------------------------------------------------===//
// DeviceTy: mappings
//===----------------------------------------------------------------------===//

static bool isUnified() { return PM->RTLs.RequiresFlags & OMP_REQ_UNIFIED_SHARED_MEMORY; }

static TargetPointerResultTy result(const Answer &A, const omprs::Device *D) {
  return {{A.found == Found::New, A.found == Found::Host}, ListIterator(A.entry, D, A.counted != nullptr), A.target};
}

TargetPointerResultTy DeviceTy::getTargetPointer(void *HstPtrBegin, void *HstPtrBase, int64_t Size,
                                                 map_var_info_t HstPtrName, bool HasFlagTo, bool HasFlagAlways,
                                                 bool IsImplicit, bool UpdateRefCount, bool HasCloseModifier,
                                                 bool HasPresentModifier, bool HasHoldModifier,
                                                 AsyncInfoTy &AsyncInfo) {
  Answer A;
  omprs::getTargetPointer(*Core,
                          {HstPtrBegin, Size, HstPtrBase, HstPtrName, HasHoldModifier, IsImplicit, UpdateRefCount,
                           HasCloseModifier, HasPresentModifier, isUnified()},
                          HasFlagTo, HasFlagAlways, AsyncInfo, &A);
  return result(A, Core);
}

void *DeviceTy::getTgtPtrBegin(void *HstPtrBegin, int64_t Size) {
  return omprs::getTgtPtrBegin(*Core, HstPtrBegin, Size);
}

TargetPointerResultTy DeviceTy::getTgtPtrBegin(void *HstPtrBegin, int64_t Size, bool &IsLast, bool UpdateRefCount,
                                               bool UseHoldRefCount, bool &IsHostPtr, bool MustContain,
                                               bool ForceDelete) {
  Answer A;
  omprs::getTgtPtrBegin(*Core,
                        {HstPtrBegin, Size, UseHoldRefCount, UpdateRefCount, MustContain, ForceDelete, isUnified()},
                        &A);
  IsLast = A.found == Found::Last;
  IsHostPtr = A.found == Found::Host;
  return result(A, Core);
}

int DeviceTy::deallocTgtPtr(void *HstPtrBegin, int64_t Size, bool HasHoldModifier) {
  return omprs::deallocTgtPtr(*Core, HstPtrBegin, Size, HasHoldModifier);
}

int DeviceTy::associatePtr(void *HstPtrBegin, void *TgtPtrBegin, int64_t Size) {
  return omprs::associatePtr(*Core, HstPtrBegin, TgtPtrBegin, Size);
}

int DeviceTy::disassociatePtr(void *HstPtrBegin) { return omprs::disassociatePtr(*Core, HstPtrBegin); }

//===----------------------------------------------------------------------===//
// DeviceTy: the plugin
//===----------------------------------------------------------------------===//

__tgt_target_table *DeviceTy::load_binary(void *Img) {
  // Plugins need not be ready for two loads at once.
  std::lock_guard<std::mutex> Lock(RTL->Mtx);
  return static_cast<__tgt_target_table *>(omprs::loadBinary(*Core, Img));
}

void *DeviceTy::allocData(int64_t Size, void *HstPtr, int32_t Kind) {
  return omprs::allocData(*Core, Size, HstPtr, Kind);
}

int32_t DeviceTy::deleteData(void *TgtPtrBegin) { return omprs::deleteData(*Core, TgtPtrBegin); }

int32_t DeviceTy::submitData(void *TgtPtrBegin, void *HstPtrBegin, int64_t Size, AsyncInfoTy &AsyncInfo) {
  return omprs::submitData(*Core, TgtPtrBegin, HstPtrBegin, Size, AsyncInfo);
}

int32_t DeviceTy::retrieveData(void *HstPtrBegin, void *TgtPtrBegin, int64_t Size, AsyncInfoTy &AsyncInfo) {
  return omprs::retrieveData(*Core, HstPtrBegin, TgtPtrBegin, Size, AsyncInfo);
}

bool DeviceTy::isDataExchangable(const DeviceTy &DstDevice) {
  return RTL == DstDevice.RTL && omprs::isDataExchangable(*Core, *DstDevice.Core);
}

int32_t DeviceTy::dataExchange(void *SrcPtr, DeviceTy &DstDev, void *DstPtr, int64_t Size, AsyncInfoTy &AsyncInfo) {
  return omprs::dataExchange(*Core, SrcPtr, *DstDev.Core, DstPtr, Size, AsyncInfo);
}

int32_t DeviceTy::launch(void *TgtEntryPtr, void **TgtVarsPtr, ptrdiff_t *TgtOffsets, int32_t TgtVarsSize, bool IsTeam,
                         int32_t NumTeams, int32_t ThreadLimit, uint64_t LoopTripCount, AsyncInfoTy &AsyncInfo) {
  return omprs::run(*Core,
                    {TgtEntryPtr, TgtVarsPtr, TgtOffsets, TgtVarsSize, NumTeams, ThreadLimit, LoopTripCount, IsTeam},
                    AsyncInfo);
}

int32_t DeviceTy::runRegion(void *TgtEntryPtr, void **TgtVarsPtr, ptrdiff_t *TgtOffsets, int32_t TgtVarsSize,
                            AsyncInfoTy &AsyncInfo) {
  return launch(TgtEntryPtr, TgtVarsPtr, TgtOffsets, TgtVarsSize, /*IsTeam=*/false, 0, 0, 0, AsyncInfo);
}

int32_t DeviceTy::runTeamRegion(void *TgtEntryPtr, void **TgtVarsPtr, ptrdiff_t *TgtOffsets, int32_t TgtVarsSize,
                                int32_t NumTeams, int32_t ThreadLimit, uint64_t LoopTripCount,
                                AsyncInfoTy &AsyncInfo) {
  return launch(TgtEntryPtr, TgtVarsPtr, TgtOffsets, TgtVarsSize, /*IsTeam=*/true, NumTeams, ThreadLimit,
                LoopTripCount, AsyncInfo);
}

int32_t DeviceTy::synchronize(AsyncInfoTy &AsyncInfo) { return omprs::synchronize(AsyncInfo); }

bool DeviceTy::printDeviceInfo(int32_t RTLDevID) { return omprs::printDeviceInfo(*Core, RTLDevID); }

int32_t DeviceTy::createEvent(void **Event) { return omprs::createEvent(*Core, Event); }

int32_t DeviceTy::recordEvent(void *Event, AsyncInfoTy &AsyncInfo) {
  return omprs::recordEvent(*Core, Event, AsyncInfo);
}

int32_t DeviceTy::waitEvent(void *Event, AsyncInfoTy &AsyncInfo) { return omprs::waitEvent(*Core, Event, AsyncInfo); }

int32_t DeviceTy::syncEvent(void *Event) { return omprs::syncEvent(*Core, Event); }

int32_t DeviceTy::destroyEvent(void *Event) { return omprs::destroyEvent(*Core, Event); }
