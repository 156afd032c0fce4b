// SPDX-License-Identifier: Apache-2.0
// The page's words. English is what the code says; other languages are tables from it.

const chinese = {
  'Verdict': '结论', 'Timeline': '时间线', 'Model': '模型', 'Call': '调用', 'Compare': '比较', 'Ranks': '进程组',
  'AI Core': 'AI Core', 'Training': '训练健康',
  'search calls': '搜索调用', 'theme': '主题', 'light': '浅色', 'dark': '深色', 'as the system': '跟随系统',
  'Nothing wrong was found.': '没有发现问题。',
  'Nothing wrong was found, but the run is incomplete.': '没有发现问题，但记录不完整。',
  'In step {step}, {op} in {module} turned finite inputs into {what}.': '第 {step} 步，{module} 中的 {op} 把有限的输入变成了 {what}。',
  'In step {step}, {op} in {module} produced {what}.': '第 {step} 步，{module} 中的 {op} 产生了 {what}。',
  'In step {step}, {op} in {module} read {what} that no recorded call had made.': '第 {step} 步，{module} 中的 {op} 读到了 {what}，没有任何已记录的调用产生过它。',
  'In step {step}, {op} in {module} overflowed.': '第 {step} 步，{module} 中的 {op} 溢出。',
  '{words}: {op} in {module}, step {step}.': '{words}：第 {step} 步，{module} 中的 {op}。',
  'It reached the {what} in step {step}.': '它在第 {step} 步到达了{what}。',
  'It was hidden by {call}.': '它被 {call} 掩盖。',
  'the model itself': '模型本身', 'a value that is not finite': '非有限值',
  'loss': '损失', 'gradient': '梯度', 'parameter': '参数',
  'first finding': '第一个发现', 'finding {n} of {all}': '第 {n} 个发现，共 {all} 个', 'findings': '发现',
  'proven': '已证实', 'likely': '很可能', 'suspected': '怀疑',
  'overflow': '溢出', 'unsound input': '输入异常', 'crash': '崩溃', 'replay mismatch': '重放不一致', 'nondeterminism': '不确定性',
  'divergence origin': '分歧源头', 'structural difference': '结构差异', 'gradient explosion': '梯度爆炸', 'gradient vanishing': '梯度消失',
  'rank mismatch': '进程间不一致', 'aicore error': 'AI Core 错误',
  'why': '原因', 'the path': '传播路径', 'from the origin to where it got': '从源头到它到达之处', 'source': '源代码',
  'inputs': '输入', 'outputs': '输出', 'input': '输入', 'output': '输出',
  'largest magnitude over the steps': '各步的最大幅值', 'limit of {type}': '{type} 的上限', 'not finite': '非有限',
  'step': '步', 'rank': '进程', 'next': '下一步', 'copy': '复制', 'copied': '已复制',
  'warnings': '警告', 'origin': '源头', 'unsound': '异常', 'sound': '正常', 'mask': '掩码', 'hidden': '掩盖', 'reached': '到达', 'unread': '未读取',
  '{n} more calls': '另有 {n} 个调用',
  'The source is not at hand.': '源代码不在手边。',
  'This file does not hold that call; opscope serve shows every one.': '此文件不含该调用；opscope serve 可显示全部。',
  'Choose a call in another view, or search for one.': '请在其他视图中选择一个调用，或搜索。',
  'operator': '算子', 'module': '模块', 'phase': '阶段', 'level': '层级', 'device': '设备', 'arguments': '参数', 'error': '错误', 'status': '状态', 'index': '序号',
  'forward': '前向', 'backward': '反向', 'optimizer': '优化器', 'recompute': '重计算', 'communication': '通信',
  'forward call': '前向调用', 'backward calls': '反向调用', 'inside': '位于', 'stack, innermost first': '调用栈，最内层在前',
  '{n} frames in installed packages': '已安装包中的 {n} 帧', 'made by': '来自', 'read by': '被读取于', 'tensors': '张量', 'statistics': '统计量',
  'values not kept; record with --values full to keep them': '未保留数值；用 --values full 记录即可保留',
  'no statistics': '无统计量', 'loading': '加载中', 'steps': '步数', 'calls a step': '每步调用数', 'ranks': '进程数',
  'runs': '记录', 'more was recorded: show it': '有新记录：显示', 
  'The model and the worst of each part': '模型及各部分最坏的情况', 'data flow': '数据流', 'its first unsound call': '它的第一个异常调用', 'calls': '调用',
  'Training over its steps': '训练过程', 'norms of gradients': '梯度范数', 'norms of parameters': '参数范数', 'share of zeros after activations': '激活后零的比例', 'shown': '显示', 'what moved most': '变化最大的', 'as a table': '表格', 'line': '曲线', 'first': '首', 'last': '末',
  'This run has a single step.': '此记录只有一步。', 'This run has a single rank.': '此记录只有一个进程。', 'The ranks call the same collectives in the same order.': '各进程以相同顺序调用相同的集合通信。',
  'The ranks part at collective {n}.': '各进程在第 {n} 次集合通信处分开。', 'collectives, in the order each rank called them': '集合通信，按各进程的调用顺序', 'none': '无', 'near': '接近上限',
  'same': '相同', 'unknown': '未知', 'noise': '噪声', 'structural': '结构不同', 'receiver': '被波及', 'amplifier': '放大', 'not there': '没有', 'every run beside the target': '与目标并列的所有记录', 'target': '目标', 'golden': '基准', 'worst': '最坏', 'largest error': '最大误差', 'largest': '最大',
  '{n} of {all} elements differ': '{all} 个元素中 {n} 个不同', 'filter': '筛选', 'result': '结果', 'every result': '所有结果', '{n} rows': '{n} 行', 'every tensor': '所有张量', 'more rows': '更多行', 'both models': '两个模型', 'what the differences look like': '差异的样子',
  'No values were kept on both sides; record with --values full to draw them.': '两侧没有都保留数值；用 --values full 记录即可画出。', 'This page holds no comparison.': '此页面没有比较。', 'The runs agree.': '两次运行一致。', 'These look like two different models.': '这看起来是两个不同的模型。', 'Where the two runs part': '两次运行在哪里分开',
  'memory': '内存', 'Order and overlap are true; lengths are logarithms.': '次序与重叠为真；长度为对数。', 'operator not known': '未知算子', 'no AI Core error': '没有 AI Core 错误', 'fault': '出错地址', 'argument': '参数', 'allocation': '分配',
  'values': '数值', 'magnitude of the elements': '元素的幅值',
  'near the limit': '接近上限', '{n} calls': '{n} 个调用', 'health': '健康状况', 'magnitude': '幅值', 'underflow (share of zeros)': '下溢（零的比例）',
  'distance from golden': '与基准的距离', 'own expression': '自定义表达式', 'colour': '着色', 'everything': '全部', 'This run holds no calls.': '此记录没有调用。',
  'Every call of every step': '每一步的每个调用',
  'A row for each step, a column for each call. Drag to move, scroll to zoom, click to open; arrows, + − 0 and Enter do the same.': '每行一步，每列一个调用。拖动平移，滚轮缩放，点击打开；方向键、+ − 0 和回车同样可用。',
  'skip to content': '跳到内容', 'language': '语言', 'keys': '按键', 'program': '程序',
};
const tables = {en: {}, zh: chinese};
let language = 'en';

export const languages = {en: 'English', zh: '中文'};
export function speak(name) {
  language = name in tables ? name : 'en';
  document.documentElement.lang = language === 'zh' ? 'zh-CN' : 'en';
}
// A text in the page's language; {name} is filled in.
export function t(text, values = {}) {
  const told = tables[language][text] ?? text;
  return told.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}
