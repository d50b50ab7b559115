package sqlstore

import (
	"context"
	"slices"

	"github.com/seed-ff5a32d8/dispatcher/store"
	"github.com/seed-ff5a32d8/dispatcher/store/sqlstore/internal/sqldb"
)

// An itemList is a list of expected references and topics.
type itemList interface {
	// pages calls look for one page of the list after the other, at most compareRefs items each.
	pages(look func(page []store.RefTopic) error) error
	// unlisted returns the items that are not in the list.
	unlisted(items []store.RefTopic) ([]store.RefTopic, error)
}

// givenItems is a list in memory, without duplicates. has contains its items.
type givenItems struct {
	all []store.RefTopic
	has map[store.RefTopic]bool
}

func newGivenItems(items []store.RefTopic) *givenItems {
	l := &givenItems{has: make(map[store.RefTopic]bool, len(items))}
	for _, item := range items {
		if !l.has[item] {
			l.has[item] = true
			l.all = append(l.all, item)
		}
	}
	return l
}

func (l *givenItems) pages(look func(page []store.RefTopic) error) error {
	for page := range slices.Chunk(l.all, compareRefs) {
		if err := look(page); err != nil {
			return err
		}
	}
	return nil
}

func (l *givenItems) unlisted(items []store.RefTopic) (rest []store.RefTopic, _ error) {
	for _, item := range items {
		if !l.has[item] {
			rest = append(rest, item)
		}
	}
	return rest, nil
}

// expectedItems is the stored list of a project and day.
type expectedItems struct {
	read         sqldb.Read
	project, day string
}

var refTopicColumns = sqldb.Named[store.RefTopic](`ref topic`)

func (l *expectedItems) pages(look func(page []store.RefTopic) error) error {
	var after store.RefTopic
	for {
		page, err := sqldb.Select(l.read, refTopicColumns, `FROM expected_items
			WHERE project = $1 AND day = $2 AND (ref, topic) > ($3, $4)
			ORDER BY ref, topic LIMIT $5`, l.project, l.day, after.Ref, after.Topic, compareRefs)
		if err != nil {
			return err
		}
		if err := look(page); err != nil || len(page) < compareRefs {
			return err
		}
		after = page[len(page)-1]
	}
}

func (l *expectedItems) unlisted(items []store.RefTopic) (rest []store.RefTopic, _ error) {
	columns := func(i *store.RefTopic) sqldb.Columns {
		return sqldb.Columns{col("i.ref", &i.Ref), col("i.topic", &i.Topic)}
	}
	for page := range slices.Chunk(items, compareRefs) {
		found, err := sqldb.Select(l.read, columns, `FROM $i WHERE NOT EXISTS (
				SELECT 1 FROM expected_items AS e
				WHERE e.project = $1 AND e.day = $2 AND e.ref = i.ref AND e.topic = i.topic)`,
			l.project, l.day, sqldb.Rows(page, refTopicColumns))
		if err != nil {
			return nil, err
		}
		rest = append(rest, found...)
	}
	return rest, nil
}

// CompareItems compares a list of references and topics with the callbacks that were accepted in the span. It
// returns up to most items of each kind.
func (db *DB) CompareItems(ctx context.Context, project string, from, to int64, items []store.RefTopic,
	most int) (store.ItemComparison, error) {
	c := itemComparer{db: db, read: db.read(ctx, "compare items"), project: project, from: from, to: to,
		until: to, most: most}
	return c.compare(newGivenItems(items))
}

// An itemComparer compares a list with the callbacks of a span.
type itemComparer struct {
	db       *DB
	read     sqldb.Read
	project  string
	from, to int64
	// until is the end of the search for listed items, to that of the search for extra ones.
	until int64
	most  int

	result store.ItemComparison
	// kept are the items of each kind.
	kept map[store.ItemKind][]store.ReconcileItem
}

func (c *itemComparer) compare(list itemList) (store.ItemComparison, error) {
	c.kept = make(map[store.ItemKind][]store.ReconcileItem)
	err := list.pages(c.lookUp)
	if err == nil {
		err = c.findExtra(list)
	}
	if err != nil {
		return store.ItemComparison{}, err
	}
	for _, kind := range store.ItemKinds {
		c.result.Items = append(c.result.Items, c.kept[kind]...)
	}
	return c.result, nil
}

// keep counts an item, and keeps it unless there are enough of its kind.
func (c *itemComparer) keep(count *int64, item store.ReconcileItem) {
	*count++
	if kept := c.kept[item.Kind]; len(kept) < c.most {
		c.kept[item.Kind] = append(kept, item)
	}
}

// A foundItem counts the callbacks of one listed item.
type foundItem struct {
	store.RefTopic
	callbacks, succeeded, open, dead int64
	first                            string
}

func foundItemColumns(f *foundItem) sqldb.Columns {
	count := func(what string) string { return "SUM(CASE WHEN " + what + " THEN 1 ELSE 0 END)" }
	return sqldb.Columns{
		col("i.ref", &f.Ref), col("i.topic", &f.Topic), col("COUNT(*)", &f.callbacks),
		col(count("callbacks.state = 'succeeded'"), &f.succeeded),
		col(count("callbacks.state = 'scheduled'"), &f.open),
		col(count("callbacks.state = 'dead'"), &f.dead), col("MIN(requests.id)", &f.first),
	}
}

// state returns the best state of the callbacks.
func (f *foundItem) state() store.State {
	switch {
	case f.succeeded > 0:
		return store.Succeeded
	case f.open > 0:
		return store.Scheduled
	case f.dead > 0:
		return store.Dead
	}
	return store.Canceled
}

// lookUp finds the callbacks of one page of the list, by the index requests_ref.
func (c *itemComparer) lookUp(page []store.RefTopic) error {
	if len(page) == 0 {
		return nil
	}
	rows, err := sqldb.Select(c.read, foundItemColumns, `FROM $i CROSS JOIN requests CROSS JOIN callbacks
		WHERE requests.project = $1 AND requests.ref = i.ref AND requests.ref <> ''
			AND requests.id > $2 AND requests.id < $3 AND requests.topic = i.topic
			AND callbacks.id = requests.id
		GROUP BY i.ref, i.topic`, c.project, idsFrom(c.from), idsFrom(c.until),
		sqldb.Rows(page, refTopicColumns))
	if err != nil {
		return err
	}
	found := make(map[store.RefTopic]*foundItem, len(rows))
	for i := range rows {
		found[rows[i].RefTopic] = &rows[i]
	}
	for _, listed := range page {
		c.result.Listed++
		f := found[listed]
		if f == nil {
			c.keep(&c.result.Missing, store.ReconcileItem{Kind: store.ItemMissing, RefTopic: listed})
			continue
		}
		c.result.Matched++
		item := store.ReconcileItem{RefTopic: listed, State: f.state(), CallbackID: f.first,
			Callbacks: f.callbacks}
		if item.State != store.Succeeded {
			item.Kind = store.ItemUnfinished
			c.keep(&c.result.Unfinished, item)
		}
		if f.callbacks > 1 {
			item.Kind = store.ItemDuplicate
			c.keep(&c.result.Duplicates, item)
		}
	}
	return nil
}

// findExtra finds the callbacks of the span whose reference and topic are not listed, except messages of the
// program itself: their topics begin with "dispatcher.". Only the first callback of a reference and topic
// counts, so each is found once, in whatever window.
func (c *itemComparer) findExtra(list itemList) error {
	type firstOf struct {
		store.RefTopic
		id string
	}
	columns := func(f *firstOf) sqldb.Columns {
		return sqldb.Columns{col("requests.ref", &f.Ref), col("requests.topic", &f.Topic),
			col("requests.id", &f.id)}
	}
	return c.db.inWindows(c.read, c.project, c.from, c.to, func(after, end string) error {
		rows, err := sqldb.Select(c.read, columns, `FROM requests
			WHERE requests.project = $1 AND requests.id > $2 AND requests.id <= $3 AND requests.ref <> ''
				AND requests.topic NOT LIKE 'dispatcher.%'
				AND NOT EXISTS (
					SELECT 1 FROM requests AS earlier
					WHERE earlier.project = $1 AND earlier.ref = requests.ref AND earlier.ref <> ''
						AND earlier.id > $4 AND earlier.id < requests.id
						AND earlier.topic = requests.topic)
			ORDER BY requests.id`, c.project, after, end, idsFrom(c.from))
		if err != nil {
			return err
		}
		items, ids := make([]store.RefTopic, len(rows)), make(map[store.RefTopic]string, len(rows))
		for i := range rows {
			items[i], ids[rows[i].RefTopic] = rows[i].RefTopic, rows[i].id
		}
		extra, err := list.unlisted(items)
		for _, item := range extra {
			c.keep(&c.result.Extra, store.ReconcileItem{Kind: store.ItemExtra, RefTopic: item,
				CallbackID: ids[item]})
		}
		return err
	})
}
