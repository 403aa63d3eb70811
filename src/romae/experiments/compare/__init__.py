"""Default estimators beside what people would take instead, nothing tuned for any data set: `romae compare`.

`problems` are the data, `methods` what competes, `trial` runs one method after the other on one division of one
problem, and `table` says what all of it comes to, with mean ranks. Every problem has a division of its training data
(`for_choosing`): defaults were chosen there, on the problems that say so, and never on a test.
"""
