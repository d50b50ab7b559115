package ui

import (
	"sync"
	"time"
)

const (
	// guessesAtOnce is how many wrong keys an address may try in a row, guessEvery how often one more after that.
	guessesAtOnce = 10
	guessEvery    = 6 * time.Second
	// maxGuessers bounds the addresses that are remembered. Beyond it all others share one account.
	maxGuessers = 10_000
)

// guesses slows down who tries keys. Its zero value is ready.
type guesses struct {
	mu sync.Mutex
	// spent is until when each address's attempts last: one more is taken where that is less than the burst ahead.
	spent map[string]time.Time
}

// wait says how long an address must wait before it may try a key; zero: not at all.
func (g *guesses) wait(address string, now time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	until, some := g.spent[g.name(address)]
	if !some {
		return 0
	}
	return max(until.Add(-(guessesAtOnce-1)*guessEvery).Sub(now), 0)
}

// wrong notes that an address has tried a key that is none.
func (g *guesses) wrong(address string, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.spent) >= maxGuessers {
		for name, until := range g.spent {
			if until.Before(now) {
				delete(g.spent, name)
			}
		}
	}
	if g.spent == nil {
		g.spent = make(map[string]time.Time)
	}
	name := g.name(address)
	from := g.spent[name]
	if from.Before(now) {
		from = now
	}
	g.spent[name] = from.Add(guessEvery)
}

// name is the account of an address.
func (g *guesses) name(address string) string {
	if _, known := g.spent[address]; !known && len(g.spent) >= maxGuessers {
		return ""
	}
	return address
}
