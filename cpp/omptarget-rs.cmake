# Builds LLVM 14's libomptarget with the Rust core, by LLVM's own CMake files and without a change to LLVM's tree:
#
#   cmake -S openmp -DCMAKE_PROJECT_openmp_INCLUDE=<this file> ...
#
# CMake reads this file right after `project(openmp)`, or after every `project()` if it is given as
# CMAKE_PROJECT_INCLUDE. There is no target yet then, so the swap is put off until all of LLVM's files have been read.

include_guard(GLOBAL)

option(OMPTARGET_RS_CORE "Build libomptarget with the Rust core in place of LLVM's device.cpp" ON)
if(NOT OMPTARGET_RS_CORE)
  return()
endif()

if(CMAKE_VERSION VERSION_LESS 3.19)
  message(FATAL_ERROR "omptarget-rs needs CMake 3.19 or newer; this is ${CMAKE_VERSION}.")
endif()
if(CMAKE_CROSSCOMPILING OR NOT "${CMAKE_SYSTEM_NAME} ${CMAKE_SYSTEM_PROCESSOR}" STREQUAL "Linux x86_64")
  message(FATAL_ERROR "omptarget-rs supports native builds on x86-64 Linux; this build is for "
    "${CMAKE_SYSTEM_PROCESSOR} ${CMAKE_SYSTEM_NAME}.")
endif()

# Sets OMPTARGET_RS_CARGO, and stops here rather than in the middle of a build if it is missing or too old.
function(omptarget_rs_find_cargo)
  get_filename_component(root "${CMAKE_CURRENT_FUNCTION_LIST_DIR}" DIRECTORY)
  find_program(OMPTARGET_RS_CARGO cargo PATHS "$ENV{CARGO_HOME}/bin" "$ENV{HOME}/.cargo/bin"
    DOC "Rust's cargo, which builds the core of libomptarget")
  file(STRINGS "${root}/Cargo.toml" required REGEX "^rust-version = ")
  string(REGEX MATCH "[0-9.]+" required "${required}")
  set(help "install Rust ${required} or newer (https://rustup.rs), or name its cargo with -DOMPTARGET_RS_CARGO=<file>.")
  if(NOT OMPTARGET_RS_CARGO)
    message(FATAL_ERROR "omptarget-rs needs cargo, which was not found: ${help}")
  endif()
  execute_process(COMMAND "${OMPTARGET_RS_CARGO}" --version WORKING_DIRECTORY "${root}"
    OUTPUT_VARIABLE found ERROR_VARIABLE found)
  if(NOT found MATCHES "^cargo ([0-9.]+)" OR CMAKE_MATCH_1 VERSION_LESS required)
    string(STRIP "${found}" found)
    message(FATAL_ERROR "omptarget-rs cannot use ${OMPTARGET_RS_CARGO} (${found}): ${help}")
  endif()
endfunction()

# Swaps the core into target omptarget.
function(omptarget_rs_swap)
  get_filename_component(root "${CMAKE_CURRENT_FUNCTION_LIST_DIR}" DIRECTORY)

  if(NOT TARGET omptarget)
    message(FATAL_ERROR "omptarget-rs: nothing here builds libomptarget; is OPENMP_ENABLE_LIBOMPTARGET off?")
  endif()
  get_target_property(llvm_src omptarget SOURCE_DIR)
  get_directory_property(major DIRECTORY "${llvm_src}" DEFINITION LLVM_VERSION_MAJOR)
  get_directory_property(minor DIRECTORY "${llvm_src}" DEFINITION LLVM_VERSION_MINOR)
  get_directory_property(patch DIRECTORY "${llvm_src}" DEFINITION LLVM_VERSION_PATCH)
  if(NOT major EQUAL 14)
    message(FATAL_ERROR "omptarget-rs supports LLVM 14; this build uses LLVM ${major}.${minor}.${patch}.")
  endif()

  # The sources tell the release too: openmp may have been given another one's LLVM. A list that is not as we know it
  # must stop here, or LLVM's device.cpp could be built as if nothing had been asked for.
  get_target_property(sources omptarget SOURCES)
  list(TRANSFORM sources REPLACE "^.*/" "" OUTPUT_VARIABLE names)
  list(SORT names)
  if(NOT names STREQUAL "api.cpp;device.cpp;interface.cpp;interop.cpp;omptarget.cpp;rtl.cpp")
    message(FATAL_ERROR "omptarget-rs: the sources of libomptarget in ${llvm_src} are not those of LLVM 14: ${names}")
  endif()

  set(target_dir "${CMAKE_BINARY_DIR}/omptarget-rs")
  set(archive "${target_dir}/release/libomptarget.a")
  # cargo decides quickly that nothing is to be done, and leaves the archive as it is then. The directory goes by the
  # environment because the bridge's generator asks that first for where to put its headers. The C++ flags are the
  # user's, without LLVM's warnings.
  add_custom_target(omptarget-rs-core
    COMMAND "${CMAKE_COMMAND}" -E env --unset=CARGO_BUILD_TARGET "CARGO_TARGET_DIR=${target_dir}"
      "CXX=${CMAKE_CXX_COMPILER}" "CXXFLAGS=$CACHE{CMAKE_CXX_FLAGS}"
      "${OMPTARGET_RS_CARGO}" build --release --locked --package omptarget --lib
    BYPRODUCTS "${archive}"
    WORKING_DIRECTORY "${root}"
    COMMENT "Building the Rust core of libomptarget"
    USES_TERMINAL VERBATIM)
  add_dependencies(omptarget omptarget-rs-core)

  set(shim "${root}/cpp/llvm14/device.cpp")
  list(FILTER sources EXCLUDE REGEX "(^|/)device\\.cpp$")
  set_property(TARGET omptarget PROPERTY SOURCES ${sources} "${shim}")
  # The bridge's headers change with the archive only.
  set_property(SOURCE "${shim}" TARGET_DIRECTORY omptarget PROPERTY OBJECT_DEPENDS "${archive}")
  # Our headers have to be found ahead of LLVM's; LLVM's private.h lies beside the device.cpp that it is out of sight of.
  target_include_directories(omptarget BEFORE PRIVATE
    "${root}/include/llvm14" "${root}/include" "${target_dir}/cxxbridge" "${llvm_src}")
  target_link_libraries(omptarget PRIVATE "${archive}" pthread dl m)
  target_link_options(omptarget PRIVATE LINKER:--gc-sections)
  # What is missing shows now, not at load; only a sanitizer's functions come with the program.
  if(NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    target_link_options(omptarget PRIVATE LINKER:-z,defs)
  endif()

  message(STATUS "omptarget-rs: libomptarget gets the Rust core of ${root}")
endfunction()

omptarget_rs_find_cargo()
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL omptarget_rs_swap)
