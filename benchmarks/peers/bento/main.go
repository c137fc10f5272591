// Bento with what the benchmarks need: its pure processors, NATS and Kafka, none of its other hundred connectors. It is the
// same program as Bento's own command otherwise, and takes minutes less to build.
package main

import (
	"context"
	"hash/fnv"

	"github.com/warpstreamlabs/bento/public/bloblang"
	_ "github.com/warpstreamlabs/bento/public/components/kafka"
	_ "github.com/warpstreamlabs/bento/public/components/nats"
	_ "github.com/warpstreamlabs/bento/public/components/pure"
	"github.com/warpstreamlabs/bento/public/service"
)

// Bloblang hashes with FNV-1 alone, nats-server's partitions are of FNV-1a: this is the one function that was missing.
func partition(arguments *bloblang.ParsedParams) (bloblang.Method, error) {
	count, err := arguments.GetInt64("count")
	if err != nil {
		return nil, err
	}
	return bloblang.StringMethod(func(text string) (any, error) {
		hash := fnv.New32a()
		hash.Write([]byte(text))
		return int64(hash.Sum32()) % count, nil
	}), nil
}

func main() {
	spec := bloblang.NewPluginSpec().Param(bloblang.NewInt64Param("count"))
	if err := bloblang.RegisterMethodV2("partition", spec, partition); err != nil {
		panic(err)
	}
	service.RunCLI(context.Background())
}
