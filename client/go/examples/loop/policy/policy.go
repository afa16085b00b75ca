// Package policy is a softmax over 16 tokens, for the loops before and after a correction.
package policy

import (
	"math"
	"math/rand"
)

// Tokens is the size of the vocabulary, and Batch that of a batch.
const Tokens, Batch = 16, 64 * 32

// Logits are one for each token.
type Logits [Tokens]float64

// Reward of each token, from 0.5 to 1.
func Reward(token int) float64 { return 0.5 + 0.5*float64(token)/(Tokens-1) }

// LogSoftmax has the log-prob of each token.
func (l Logits) LogSoftmax() Logits {
	sum := 0.0
	for _, logit := range l {
		sum += math.Exp(logit)
	}
	for i := range l {
		l[i] -= math.Log(sum)
	}
	return l
}

// Rounded are the logits of an engine with few bits.
func (l Logits) Rounded() Logits {
	for i := range l {
		l[i] = math.RoundToEven(l[i])
	}
	return l
}

// Sample draws a batch from log-probs.
func Sample(logProbs Logits, random *rand.Rand) []int {
	tokens := make([]int, Batch)
	for i := range tokens {
		left := random.Float64()
		for tokens[i] = 0; tokens[i] < Tokens-1; tokens[i]++ {
			if left -= math.Exp(logProbs[tokens[i]]); left < 0 {
				break
			}
		}
	}
	return tokens
}

// Of returns the log-prob of each token of a batch.
func (l Logits) Of(tokens []int) []float32 {
	values := make([]float32, len(tokens))
	for i, token := range tokens {
		values[i] = float32(l[token])
	}
	return values
}

// Update follows the gradient of -mean(weights * log-probs of the tokens) once.
func (l Logits) Update(tokens []int, weights []float64) Logits {
	logProbs := l.LogSoftmax()
	rate := 4 / float64(len(tokens))
	for i, token := range tokens {
		l[token] += rate * weights[i]
		for j := range l {
			l[j] -= rate * weights[i] * math.Exp(logProbs[j])
		}
	}
	return l
}

// ExpectedReward is the mean reward of the policy's tokens.
func (l Logits) ExpectedReward() float64 {
	sum := 0.0
	for token, logProb := range l.LogSoftmax() {
		sum += math.Exp(logProb) * Reward(token)
	}
	return sum
}
