package ui

import (
	"cmp"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
)

// namedSources bounds the sources that a line of what needs attention names.
const namedSources = 3

// maxRelayError bounds the bytes of a source's error in such a line.
const maxRelayError = 80

// relayProblems adds the outbox sources that no relay reads, that have an error, that are delayed, or that
// have refused rows.
func (u *UI) relayProblems(r *request, p *overviewPage) error {
	found, err := u.Engine.RelaySources(r.ctx, r.caller.Project)
	if err != nil {
		return err
	}
	states := make(map[string][]*relayRow)
	var refused []*relayRow
	for i := range found {
		row := p.relayRow(&found[i])
		if row.State != relayUnheld || r.now-row.ReportedAt > missedAfter {
			states[row.State] = append(states[row.State], row)
		}
		if row.Refused != "" {
			refused = append(refused, row)
		}
	}
	for _, s := range relayColours {
		if rows := states[s.Name]; s.Name != relayOK && len(rows) > 0 {
			p.Attention = append(p.Attention, p.relayProblem(s.Value, "attention.relay."+s.Name, rows))
		}
	}
	if len(refused) == 0 {
		return nil
	}
	slices.SortStableFunc(refused, func(a, b *relayRow) int {
		return cmp.Compare(b.Report.RefusedRows, a.Report.RefusedRows)
	})
	line := p.relayProblem("warn", "attention.relay.refused", refused)
	if len(refused) == 1 && refused[0].Free() && p.Can(string(store.ScopeOperate)) {
		line.Acts = slices.Insert(line.Acts, 0, problemAct{Text: p.T("relay.retry"),
			Link: refused[0].Page() + "/retry", Asks: true})
	}
	p.Attention = append(p.Attention, line)
	return nil
}

// relayProblem returns the line about sources with one problem. Its link leads to the source if it is the
// only one.
func (p *overviewPage) relayProblem(kind, key string, rows []*relayRow) problem {
	line := problem{Kind: kind, Text: p.T(key, "n", len(rows))}
	for _, row := range rows[:min(len(rows), namedSources)] {
		part := problemPart{Name: row.Name, Data: true, Link: row.Page()}
		switch key {
		case "attention.relay.refused":
			part.Count = row.Refused
		case "attention.relay." + relayFailing:
			short, isShort := cut(string(reportText(p.Engine(row.Report.Error))), maxRelayError)
			if isShort {
				short += "…"
			}
			part.Note = short
		case "attention.relay." + relayDelayed:
			part.Since = p.now - row.LagMs(p.now)
		default:
			part.Since = row.ReportedAt
		}
		line.Parts = append(line.Parts, part)
	}
	show := Root + "/relay"
	if len(rows) == 1 {
		show = rows[0].Page()
	}
	line.Acts = []problemAct{{Text: p.T("attention.show"), Link: show}}
	return line
}
