module kvmem/bindings/go

go 1.19
