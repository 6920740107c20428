module kvmem/examples/go

go 1.19

require kvmem/bindings/go v0.1.0

// Where the package is installed: PREFIX/share/kvmem/go, or in the source tree of kvmem:
replace kvmem/bindings/go => ../../bindings/go
