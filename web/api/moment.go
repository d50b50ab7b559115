package api

// moment writes a time, also the one that instant writes as none.
func (o *jsonObject) moment(name string, ms int64) {
	o.key(name)
	o.b = append(appendTime(append(o.b, '"'), ms), '"')
}
