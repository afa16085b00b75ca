// Before trains by REINFORCE. Its engine rounds logits and lags by four updates.
package main

import (
	"fmt"
	"math/rand"

	"github.com/counterweight/counterweight/client/go/examples/loop/policy"
)

func main() {
	random := rand.New(rand.NewSource(0))
	updates := []policy.Logits{{}} // logits after each
	for len(updates) <= 50 {
		newest := updates[len(updates)-1]
		engine := updates[max(0, len(updates)-5)].Rounded().LogSoftmax()
		tokens := policy.Sample(engine, random)
		weights := make([]float64, len(tokens))
		for i, token := range tokens {
			weights[i] = policy.Reward(token)
		}
		updates = append(updates, newest.Update(tokens, weights))
	}
	fmt.Printf("expected reward %.2f\n", updates[50].ExpectedReward())
}
