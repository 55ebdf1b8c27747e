//===- llvm14/device.h - The face of the Rust core for LLVM 14 --*- C++ -*-===//
//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stands in for LLVM 14's libomptarget/include/device.h, which LLVM's own sources include. The names and signatures
// are the ones that those sources use; what is behind them is in Rust, by way of cpp/llvm14/device.cpp.
//
//===----------------------------------------------------------------------===//

// LLVM's own guard: whatever finds LLVM's header after this one gets nothing of it.
#ifndef _OMPTARGET_DEVICE_H
#define _OMPTARGET_DEVICE_H

#include <algorithm>
#include <array>
#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <omptarget.h>
#include "omptarget/handle.h"
#include <rtl.h>

struct DeviceTy;

using map_var_info_t = void *;

/// The values of OMP_TARGET_OFFLOAD, as libomp numbers them.
enum kmp_target_offload_kind { tgt_disabled = 0, tgt_default = 1, tgt_mandatory = 2 };
typedef enum kmp_target_offload_kind kmp_target_offload_kind_t;

/// A mapping of a host range to the device.
///
/// These four members are the head of Rust's `Entry`, in place; the rest is reached by the functions. Objects of this
/// type are made by Rust alone, but for \ref None.
struct HostDataToTargetTy {
  const uintptr_t HstPtrBegin;
  const uintptr_t HstPtrEnd;       // one past the last
  const map_var_info_t HstPtrName; // null or the compiler's name string
  const uintptr_t TgtPtrBegin;

  HostDataToTargetTy(const HostDataToTargetTy &) = delete;
  HostDataToTargetTy &operator=(const HostDataToTargetTy &) = delete;

  /// What a handle on nothing points to: all functions on it do nothing and succeed. LLVM uses the entry of a host
  /// pointer so under unified shared memory.
  static const HostDataToTargetTy None;

  /// Records that a copy to the device has been issued. The caller holds the lock.
  int addEventIfNecessary(DeviceTy &Device, AsyncInfoTy &AsyncInfo) const;

  std::string dynRefCountToStr() const;
  std::string holdRefCountToStr() const;

  void setMayContainAttachedPointers() const;
  bool getMayContainAttachedPointers() const;

  /// Holds the entry's lock: nobody else issues a copy to its memory, or uses one that is being issued.
  struct LockGuard {
    explicit LockGuard(const HostDataToTargetTy &Entry) : Entry(Entry) { Entry.lock(); }
    ~LockGuard() { Entry.unlock(); }
    LockGuard(const LockGuard &) = delete;
    LockGuard &operator=(const LockGuard &) = delete;

  private:
    const HostDataToTargetTy &Entry;
  };

private:
  constexpr HostDataToTargetTy() : HstPtrBegin(0), HstPtrEnd(0), HstPtrName(nullptr), TgtPtrBegin(0) {}

  /// Rust's view of this entry, or null for \ref None.
  const omprs::Entry *core() const;

  void lock() const;
  void unlock() const;
};

/// A device's mappings, by host address. Walked and filled under \ref DeviceTy::DataMapMtx, as LLVM does.
class HostDataToTargetListTy {
  const omprs::Device *D;

public:
  /// A handle on an entry; without one, the end of the list.
  class iterator : public omprs::EntryHandle {
  public:
    using omprs::EntryHandle::EntryHandle;

    const HostDataToTargetTy &operator*() const {
      return entry() ? *reinterpret_cast<const HostDataToTargetTy *>(entry()) : HostDataToTargetTy::None;
    }
    const HostDataToTargetTy *operator->() const { return &**this; }
    iterator &operator++();
    bool operator==(const iterator &Other) const { return entry() == Other.entry(); }
    bool operator!=(const iterator &Other) const { return !(*this == Other); }
  };

  explicit HostDataToTargetListTy(const omprs::Device *D) : D(D) {}
  HostDataToTargetListTy(const HostDataToTargetListTy &) = delete;
  HostDataToTargetListTy &operator=(const HostDataToTargetListTy &) = delete;

  iterator begin() const;
  iterator end() const { return {}; }
  /// Takes the table lock: LLVM asks before it locks.
  bool empty() const;
  /// Adds an entry, unless its range is taken.
  void emplace(uintptr_t HstPtrBase, uintptr_t HstPtrBegin, uintptr_t HstPtrEnd, uintptr_t TgtPtrBegin,
               bool UseHoldRefCount, map_var_info_t Name = nullptr, bool IsRefCountINF = false);
};

/// Where a host pointer is on the device.
struct TargetPointerResultTy {
  struct {
    /// The mapping is new.
    bool IsNewEntry;
    /// The pointer is the host's own: unified shared memory.
    bool IsHostPointer;
  } Flags = {false, false};

  /// A handle on the mapping, if there is one.
  HostDataToTargetListTy::iterator MapTableEntry{};

  /// The address, or null.
  void *TargetPointer = nullptr;
};

/// A host pointer inside mapped data that has been replaced by a device address there.
struct ShadowPtrValTy {
  void *HstPtrVal;
  void *TgtPtrAddr;
  void *TgtPtrVal;
};
/// By the pointer's host address.
class ShadowPtrListTy {
  using MapTy = std::map<void *, ShadowPtrValTy>;
  MapTy Map;
  const omprs::Device *D;

public:
  using iterator = MapTy::iterator;

  explicit ShadowPtrListTy(const omprs::Device *D) : D(D) {}

  iterator begin() { return Map.begin(); }
  iterator end() { return Map.end(); }
  /// Only if it is attached where it is mapped now, and not in a former mapping: LLVM attaches what it does not find.
  iterator find(void *HstPtrAddr);
  ShadowPtrValTy &operator[](void *HstPtrAddr) { return Map[HstPtrAddr]; }
  iterator erase(iterator It) { return Map.erase(It); }
};

/// Constructors and destructors of a library's device globals that are still to be run.
struct PendingCtorDtorListsTy {
  std::list<void *> PendingCtors;
  std::list<void *> PendingDtors;
};
typedef std::map<__tgt_bin_desc *, PendingCtorDtorListsTy> PendingCtorsDtorsPerLibrary;

/// A lock that functions of LLVM's take to read one value, which is atomic: for those that \p Reads names it does nothing.
template <bool (*Reads)(const char *)> struct MutexButForTy : omprs::Mutex {
  void lock(const char *Caller = __builtin_FUNCTION()) {
    if (!Reads(Caller))
      Mutex::lock();
  }
  void unlock(const char *Caller = __builtin_FUNCTION()) {
    if (!Reads(Caller))
      Mutex::unlock();
  }
};

/// LLVM asks in each call whether globals are pending.
inline bool asksForPendingGlobals(const char *Caller) { return __builtin_strcmp(Caller, "checkDeviceAndCtors") == 0; }
/// LLVM's functions for users ask how many devices there are.
inline bool countsDevices(const char *Caller) { return __builtin_strncmp(Caller, "omp_", 4) == 0; }

/// A device: its plugin, its mappings, and the operations on both.
///
/// Codes are OFFLOAD_SUCCESS or OFFLOAD_FAIL, or what the plugin answered. Operations that take an AsyncInfo are issued
/// on its queue, if the plugin has queues, and are done once it has been synchronised.
struct DeviceTy {
private:
  omprs::Device *const Core; // first: the members below refer to it

public:
  // Rust keeps both numbers; LLVM sets them after it has made the device.
  int32_t &DeviceID;
  RTLInfoTy *RTL;
  int32_t &RTLDeviceID;

  std::atomic<bool> HasPendingGlobals;

  HostDataToTargetListTy HostDataToTargetMap;
  PendingCtorsDtorsPerLibrary PendingCtorsDtors;
  ShadowPtrListTy ShadowPtrMap;

  omprs::TableMutex DataMapMtx;
  MutexButForTy<asksForPendingGlobals> PendingGlobalsMtx;
  omprs::Mutex ShadowMtx;

  /// Trip count of each thread's next loop.
  std::map<int32_t, uint64_t> LoopTripCnt;

  DeviceTy(RTLInfoTy *RTL);
  DeviceTy(const DeviceTy &) = delete;
  DeviceTy &operator=(const DeviceTy &) = delete;
  /// Dumps the mappings if LIBOMPTARGET_INFO asks for it. Calls no plugin: there may be none any more.
  ~DeviceTy();

  /// Initialises the device at the first call; every call answers what came of it.
  int32_t initOnce();
  /// Initialises the device unless that was done, with the lines of device_is_ready for device \p DeviceNum.
  bool makeReady(int DeviceNum);

  /// Finds or makes the mapping of \p Size bytes at \p HstPtrBegin, a section of what begins at \p HstPtrBase, and
  /// copies to the device if it is new and \p HasFlagTo, or if \p HasFlagAlways too. A null TargetPointer with a Size
  /// means failure, of which nothing is left.
  TargetPointerResultTy getTargetPointer(void *HstPtrBegin, void *HstPtrBase, int64_t Size, map_var_info_t HstPtrName,
                                         bool HasFlagTo, bool HasFlagAlways, bool IsImplicit, bool UpdateRefCount,
                                         bool HasCloseModifier, bool HasPresentModifier, bool HasHoldModifier,
                                         AsyncInfoTy &AsyncInfo);
  /// The address of a mapped range, or null. The caller holds DataMapMtx.
  void *getTgtPtrBegin(void *HstPtrBegin, int64_t Size);
  /// Finds a mapping, and counts it out if \p UpdateRefCount. \p IsLast says that the caller is its last user, who
  /// calls deallocTgtPtr in the end.
  TargetPointerResultTy getTgtPtrBegin(void *HstPtrBegin, int64_t Size, bool &IsLast, bool UpdateRefCount,
                                       bool UseHoldRefCount, bool &IsHostPtr, bool MustContain = false,
                                       bool ForceDelete = false);
  /// The last user is done: removes the mapping, unless somebody has joined or it is gone.
  int deallocTgtPtr(void *HstPtrBegin, int64_t Size, bool HasHoldModifier);
  int associatePtr(void *HstPtrBegin, void *TgtPtrBegin, int64_t Size);
  int disassociatePtr(void *HstPtrBegin);

  __tgt_target_table *load_binary(void *Img);

  void *allocData(int64_t Size, void *HstPtr = nullptr, int32_t Kind = TARGET_ALLOC_DEFAULT);
  int32_t deleteData(void *TgtPtrBegin);
  int32_t submitData(void *TgtPtrBegin, void *HstPtrBegin, int64_t Size, AsyncInfoTy &AsyncInfo);
  int32_t retrieveData(void *HstPtrBegin, void *TgtPtrBegin, int64_t Size, AsyncInfoTy &AsyncInfo);
  bool isDataExchangable(const DeviceTy &DstDevice);
  int32_t dataExchange(void *SrcPtr, DeviceTy &DstDev, void *DstPtr, int64_t Size, AsyncInfoTy &AsyncInfo);

  int32_t runRegion(void *TgtEntryPtr, void **TgtVarsPtr, ptrdiff_t *TgtOffsets, int32_t TgtVarsSize,
                    AsyncInfoTy &AsyncInfo);
  int32_t runTeamRegion(void *TgtEntryPtr, void **TgtVarsPtr, ptrdiff_t *TgtOffsets, int32_t TgtVarsSize,
                        int32_t NumTeams, int32_t ThreadLimit, uint64_t LoopTripCount, AsyncInfoTy &AsyncInfo);

  /// Waits for the work of \p AsyncInfo, on the device that it was given to.
  int32_t synchronize(AsyncInfoTy &AsyncInfo);

  bool printDeviceInfo(int32_t RTLDevID);

  /// Events. A plugin without them succeeds, with a null event.
  /// @{
  int32_t createEvent(void **Event);
  /// The event stands for all that is on the queue of \p AsyncInfo now.
  int32_t recordEvent(void *Event, AsyncInfoTy &AsyncInfo);
  /// Later work on the queue of \p AsyncInfo waits for the event; the host does not.
  int32_t waitEvent(void *Event, AsyncInfoTy &AsyncInfo);
  /// The host waits for the event.
  int32_t syncEvent(void *Event);
  int32_t destroyEvent(void *Event);
  /// @}

private:
  friend struct HostDataToTargetTy;
  int32_t launch(void *TgtEntryPtr, void **TgtVarsPtr, ptrdiff_t *TgtOffsets, int32_t TgtVarsSize, bool IsTeam,
                 int32_t NumTeams, int32_t ThreadLimit, uint64_t LoopTripCount, AsyncInfoTy &AsyncInfo);
};

extern bool device_is_ready(int device_num);

/// All devices. They are added under RTLsMtx, and may be read meanwhile, as LLVM does: none ever moves.
class DeviceListTy {
  /// How many there are for whoever asks: a plugin's devices, for which LLVM reserves room, come all at once.
  std::atomic<size_t> Size{0};
  std::atomic<DeviceTy **> Devices{nullptr};
  size_t Added = 0, Reserved = 0, Capacity = 0;
  /// Where Devices points to, last, and the arrays before, which somebody may still be reading.
  std::vector<std::unique_ptr<DeviceTy *[]>> Arrays;

public:
  class iterator {
    DeviceListTy &List;
    size_t Number;

  public:
    iterator(DeviceListTy &List, size_t Number) : List(List), Number(Number) {}
    DeviceTy *&operator*() const { return List[Number]; }
    iterator &operator++() {
      ++Number;
      return *this;
    }
    bool operator!=(const iterator &Other) const { return Number != Other.Number; }
  };

  DeviceListTy() = default;
  DeviceListTy(const DeviceListTy &) = delete;
  DeviceListTy &operator=(const DeviceListTy &) = delete;
  ~DeviceListTy() {
    for (size_t Number = 0; Number < Added; ++Number)
      delete (*this)[Number];
  }

  size_t size() const { return Size.load(std::memory_order_acquire); }
  DeviceTy *&operator[](size_t Number) { return Devices.load(std::memory_order_acquire)[Number]; }
  iterator begin() { return {*this, 0}; }
  iterator end() { return {*this, size()}; }

  void reserve(size_t Wanted) {
    Reserved = Wanted;
    if (Wanted <= Capacity)
      return;
    Capacity = std::max(Wanted, 2 * Capacity);
    Arrays.emplace_back(new DeviceTy *[Capacity]);
    std::copy_n(Devices.load(std::memory_order_relaxed), Added, Arrays.back().get());
    Devices.store(Arrays.back().get(), std::memory_order_release);
  }
  void push_back(std::unique_ptr<DeviceTy> Device) {
    reserve(std::max(Reserved, Added + 1));
    (*this)[Added++] = Device.release();
    if (Added == Reserved)
      Size.store(Added, std::memory_order_release);
  }
};

/// All plugins, devices and images of the process.
struct PluginManager {
  PluginManager(bool UseEventsForAtomicTransfers);

  RTLsTy RTLs;

  DeviceListTy Devices;
  MutexButForTy<countsDevices> RTLsMtx; ///< For RTLs and Devices
  /// Which of the first of Devices are known to be ready, as they stay then.
  std::array<std::atomic<bool>, 64> IsReady{};

  HostEntriesBeginToTransTableTy HostEntriesBeginToTransTable;
  std::mutex TrlTblMtx; ///< For HostEntriesBeginToTransTable
  /// First host entry of each image, in the order of registration.
  std::vector<__tgt_offload_entry *> HostEntriesBeginRegistrationOrder;

  HostPtrToTableMapTy HostPtrToTableMap;
  std::mutex TblMapMtx; ///< For HostPtrToTableMap and every LoopTripCnt

  kmp_target_offload_kind_t TargetOffloadPolicy = tgt_default;
  omprs::Mutex TargetOffloadMtx; ///< For TargetOffloadPolicy

  /// LIBOMPTARGET_MAP_FORCE_ATOMIC: events order the use of mapped data after its copy to the device.
  const bool UseEventsForAtomicTransfers;
};

extern PluginManager *PM;

#endif // _OMPTARGET_DEVICE_H
