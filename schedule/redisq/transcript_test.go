package redisq_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/seed-ff5a32d8/dispatcher/schedule/queuetest"
	"github.com/seed-ff5a32d8/dispatcher/schedule/redisq"
)

// transcribed runs the matching transcripts of this package, each on its own index.
func transcribed(t *testing.T, pattern, url string, more map[string]queuetest.Operation) {
	operations := map[string]queuetest.Operation{
		"redis": command, "keys": keys, "garble": garble, "gone": gone, "seq": sequence, "failing": failing,
		"counting": counting,
	}
	maps.Copy(operations, more)
	queuetest.Transcripts(t, pattern, func(t *testing.T) queuetest.Harness {
		return frozen(open(t, url, 1))
	}, operations)
}

// command sends a command to the server. A word may be the name of a key, $a for the id of item a, or nil for
// an empty text. A ~ is a space.
func command(s *queuetest.Transcript, words []string) (any, error) {
	ix := s.Index.(*redisq.Index)
	args := make([]any, len(words))
	for i, word := range words {
		name, ofItem := strings.CutPrefix(word, "$")
		switch {
		case ofItem:
			args[i] = s.ID(name)
		case word == "nil":
			args[i] = ""
		case ix.HasKey(word):
			args[i] = ix.Key(0, word)
		default:
			args[i] = strings.ReplaceAll(word, "~", " ")
		}
	}
	answer, err := ix.Client().Do(s.Context(), args...).Result()
	if err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	return s.Named(fmt.Sprint(answer)), nil
}

// keys lists the keys of the shard with the seconds until they expire; -1: never.
func keys(s *queuetest.Transcript, _ []string) (any, error) {
	ix := s.Index.(*redisq.Index)
	tag := strings.TrimSuffix(ix.Key(0, "META"), "meta")
	found, err := ix.Client().Keys(s.Context(), tag+"*").Result()
	slices.Sort(found)
	text := ""
	for _, key := range found {
		text += fmt.Sprintf("%s %d\n", strings.TrimPrefix(key, tag), ix.Client().TTL(s.Context(), key).Val())
	}
	return text, err
}

// gone lists the missing keys of the shard.
func gone(s *queuetest.Transcript, _ []string) (any, error) {
	keys, err := s.Index.(*redisq.Index).LostKeys(s.Context(), 0)
	return strings.Join(keys, " "), err
}

// sequence reports whether the shard's sequence number has grown since the last call.
func sequence(s *queuetest.Transcript, _ []string) (any, error) {
	stats, err := s.Index.Stats(s.Context(), 0)
	last, _ := s.Memo.(int64)
	s.Memo = stats.Seq
	return fmt.Sprintf("it has grown: %t", stats.Seq > last), err
}

// failing executes an operation and reports whether it fails with the given word.
func failing(s *queuetest.Transcript, words []string) (any, error) {
	answer, err := s.Do(words[1], words[2:])
	if err != nil && strings.Contains(err.Error(), words[0]) {
		return words[0], nil
	}
	return answer, err
}

// counting executes an operation and returns the numbers of commands that the server executed.
func counting(s *queuetest.Transcript, words []string) (any, error) {
	ix := s.Index.(*redisq.Index)
	if err := ix.Client().ConfigResetStat(s.Context()).Err(); err != nil {
		return nil, err
	}
	if _, err := s.Do(words[0], words[1:]); err != nil {
		return nil, err
	}
	calls, err := commands(s.Context(), ix, "calls")
	maps.DeleteFunc(calls, func(name string, n int) bool {
		return n == 0 || strings.HasPrefix(name, "config") || name == "info"
	})
	return strings.Trim(fmt.Sprint(calls), "map[]"), err
}

// garbled is a hook that replaces a value in replies before the program reads them.
type garbled struct{ from, to string }

// garble makes the record of an item unreadable for the program, but not for the scripts.
func garble(s *queuetest.Transcript, words []string) (any, error) {
	record, err := command(s, append([]string{"hget", "RECORDS"}, words...))
	s.Index.(*redisq.Index).Client().AddHook(garbled{fmt.Sprint(record), fmt.Sprint(record, "?")})
	return nil, err
}

func (garbled) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g garbled) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if values, ok := cmd.(interface{ Val() []any }); ok {
			for i, v := range values.Val() {
				if v == g.from {
					values.Val()[i] = g.to
				}
			}
		}
		return err
	}
}

func (garbled) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
