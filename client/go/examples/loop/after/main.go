// After is the loop of before with importance weights. Usage: after TARGET
package main

import (
	"context"
	"fmt"
	"log"
	"math/rand"
	"os"

	counterweight "github.com/counterweight/counterweight/client/go"
	"github.com/counterweight/counterweight/client/go/examples/loop/policy"
)

func main() {
	client, err := counterweight.New(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	mask := make([]uint8, policy.Batch)
	for i := range mask {
		mask[i] = 1
	}
	random := rand.New(rand.NewSource(0))
	updates := []policy.Logits{{}} // logits after each
	for len(updates) <= 50 {
		newest := updates[len(updates)-1]
		engine := updates[max(0, len(updates)-5)].Rounded().LogSoftmax()
		tokens := policy.Sample(engine, random)
		result, err := client.Correct(context.Background(), &counterweight.Batch{
			Shape:           [2]int{64, 32},
			RolloutLogProbs: engine.Of(tokens),
			OldLogProbs:     newest.LogSoftmax().Of(tokens),
			ResponseMask:    mask,
		}, counterweight.Preset("token_tis"))
		if err != nil {
			log.Fatal(err)
		}
		weights := make([]float64, len(tokens))
		for i, token := range tokens {
			weights[i] = policy.Reward(token) * float64(result.Weights[i])
		}
		updates = append(updates, newest.Update(tokens, weights))
	}
	fmt.Printf("expected reward %.2f\n", updates[50].ExpectedReward())
}
