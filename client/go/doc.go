// Package counterweight corrects off-policy drift of LLM reinforcement learning batches:
// importance weights, keep masks, policy losses with their gradients, and drift metrics,
// computed by a Counterweight server.
//
//	client, err := counterweight.New("unix:/run/counterweight/cw.sock")
//	...
//	result, err := client.Correct(ctx, &counterweight.Batch{
//		Shape:           [2]int{64, 512},
//		RolloutLogProbs: rollout, // nats, from the inference engine
//		OldLogProbs:     old,     // nats, from the trainer
//		ResponseMask:    mask,    // 1 = the token counts
//	}, counterweight.Preset("token_tis"), counterweight.Run("my-run"))
//
// Multiply each token's loss by its weight. Sum over the tokens with keep mask 1 only: a dropped
// token has a weight too.
//
// How batches travel (one message, a stream, shared memory) is chosen by their size and by
// what the server offers; the answer's bytes do not depend on it.
package counterweight
