module kvmem/examples/go

go 1.19

require kvmem/bindings/go v0.1.0

// The package in the source tree of kvmem. In an installation it is in PREFIX/share/kvmem/go: change the path by
// go mod edit -replace kvmem/bindings/go=PREFIX/share/kvmem/go
replace kvmem/bindings/go => ../../bindings/go
