package rule

import "github.com/seed-ff5a32d8/dispatcher/dispatch/outbound/internal/parse"

// A truth is what can be said of predicates where "not true" is not enough: that a failure was not seen does not mean that there is none.
// The order counts: a list is as true as the truest of its own, and "all" as the least true.
type truth int

const (
	isFalse truth = iota
	// isUnsure: the document does not tell. It is not whole or not what it is declared to be, has a key or
	// an element twice, or is too much for the rule.
	isUnsure
	isTrue
)

// judge is Match, but tells what is not true from what cannot be known. Where Match says true it may be unsure of that, not the other way round.
func (ps Predicates) judge(d *Document) truth {
	most := isFalse
	for i := range ps {
		if most = max(most, ps[i].judge(d)); most == isTrue {
			break
		}
	}
	return most
}

func (p *Predicate) judge(d *Document) truth {
	switch p.look {
	case lookStatus:
		return truthOf(p.statuses.has(d.Status))
	case lookAll:
		least := isTrue
		for i := range p.all {
			if least = min(least, p.all[i].judge(d)); least == isFalse {
				break
			}
		}
		return least
	}
	switch v, why := p.see(d); {
	case why == notJSON || why == parse.NotXML:
		return isFalse // what is looked for is not in there
	case why != "":
		return isUnsure
	case p.holds(d, v):
		return isTrue
	case p.operator == opMatches && v.found && d.spent():
		return isUnsure
	}
	return isFalse
}

func truthOf(yes bool) truth {
	if yes {
		return isTrue
	}
	return isFalse
}
